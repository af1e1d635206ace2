"""Webhook secrets in the form of Standard Webhooks: whsec_ and bytes in base64."""

import base64
import binascii
import secrets

MIN_BYTES = 16

_PREFIX = "whsec_"
_DRAWN_BYTES = 24


def new_secret() -> str:
    return _PREFIX + base64.b64encode(secrets.token_bytes(_DRAWN_BYTES)).decode()


def require_webhook_secret(text: str) -> str:
    """Return the secret; ValueError if it is too short or contains characters that base64 does not have."""
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < MIN_BYTES:
        raise ValueError(f"a webhook secret is {_PREFIX} and at least {MIN_BYTES} bytes in base64")
    return text
