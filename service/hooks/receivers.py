"""Whether events may be sent to a URL, as far as can be told before connecting."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from jobs.hooks.callback_url import require_callback_url
from jobs.hooks.errors import CallbackRefused
from service.hooks.addresses import permits
from service.hooks.settings import HookSettings


def checked_receiver(url: str, settings: HookSettings) -> str:
    """The URL, or CallbackRefused; what its name resolves to is judged at every sending."""
    host = urlsplit(require_callback_url(url)).hostname or ""
    try:
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:  # a name
        return url
    if not permits(address, settings.callback_networks):
        raise CallbackRefused(
            f"events cannot be sent to {host}: it is not an address of the internet",
            hint="an operator may allow its network in SLIPWAY_CALLBACK_NETWORKS",
            where="url",
        )
    return url


def checked_callback_url(url: str | None, settings: HookSettings) -> None:
    """CallbackRefused when a job's events cannot be signed or sent there; None is no callback."""
    if url is None:
        return
    checked_receiver(url, settings)
    if not settings.callback_secrets:
        raise CallbackRefused(
            "the service has no secret to sign a job's callbacks with",
            hint="set SLIPWAY_CALLBACK_SECRETS, or subscribe with POST /subscriptions, which draws a secret",
            where="callback_url",
        )
