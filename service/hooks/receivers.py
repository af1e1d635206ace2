"""Checks of the receivers' URLs that are possible before connecting to them."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from jobs.hooks.callback_url import require_callback_url
from jobs.hooks.errors import CallbackRefused
from service.hooks.addresses import permits
from service.hooks.settings import HookSettings


def require_permitted_url(url: str, settings: HookSettings) -> str:
    """Return the URL, or raise CallbackRefused; the addresses of a host name are checked at every sending."""
    host = urlsplit(require_callback_url(url)).hostname or ""
    try:
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:  # a host name
        return url
    if not permits(address, settings.callback_networks):
        raise CallbackRefused(
            f"events cannot be sent to {host}: it is not an address of the internet",
            hint="an operator may allow its network in SLIPWAY_CALLBACK_NETWORKS",
            where="url",
        )
    return url


def require_usable_callback(url: str | None, settings: HookSettings) -> None:
    """Raise CallbackRefused if a job's events cannot be signed or sent to the URL; None is no callback."""
    if url is None:
        return
    require_permitted_url(url, settings)
    if not settings.callback_secrets:
        raise CallbackRefused(
            "the service has no secret to sign a job's callbacks with",
            hint="set SLIPWAY_CALLBACK_SECRETS, or use POST /subscriptions, which creates a secret",
            where="callback_url",
        )
