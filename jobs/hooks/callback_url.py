"""Check callback URLs by their text; the addresses behind them are checked when connecting."""

from urllib.parse import urlsplit

from jobs.hooks.errors import CallbackRefused

MAX_LENGTH = 2048


def require_callback_url(url: str) -> str:
    """Return the URL; CallbackRefused if no event may be sent to it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # reading `port` raises if it is not a number
    except ValueError as error:
        raise _refusal(url, f"it cannot be read: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise _refusal(url, "it is not an http or https URL")
    if parts.username is not None or parts.password is not None:
        raise _refusal(url, "it holds credentials, which events do not use: they are signed")
    if len(url) > MAX_LENGTH or not url.isascii() or not url.isprintable() or " " in url:
        raise _refusal(
            url, f"it is longer than {MAX_LENGTH} characters, or has characters that a URL may not have"
        )
    return url


def _refusal(url: str, why: str) -> CallbackRefused:
    return CallbackRefused(
        f"events cannot be sent to {url[:100]!r}: {why}",
        hint="give an http or https URL that accepts POST",
        where="url",
    )
