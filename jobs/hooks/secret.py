"""Secrets as Standard Webhooks writes them: whsec_ and bytes in base64."""

import base64
import binascii
import secrets

MIN_BYTES = 16

_PREFIX = "whsec_"
_DRAWN_BYTES = 24


def new_secret() -> str:
    return _PREFIX + base64.b64encode(secrets.token_bytes(_DRAWN_BYTES)).decode()


def require_webhook_secret(text: str) -> str:
    """The secret, or ValueError; what base64 does not know would else be passed over in silence."""
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < MIN_BYTES:
        raise ValueError(f"a webhook secret is {_PREFIX} and at least {MIN_BYTES} bytes in base64")
    return text
