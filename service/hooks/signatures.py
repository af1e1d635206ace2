"""Signing and verifying as Standard Webhooks says: id, time and body under a shared secret."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook, WebhookVerificationError

from jobs.hooks.errors import WebhookUnverified

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"


def verify(headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> str:
    """The message's id, when one of the secrets has signed it within the last five minutes.

    Raises:
        WebhookUnverified: it is not signed, not by us, or too long ago.
    """
    if not secrets:
        raise WebhookUnverified("no secret is configured")
    why = ""
    for secret in secrets:
        try:
            Webhook(secret).verify(body, dict(headers), json_parse=False)
        except WebhookVerificationError as error:
            why = str(error)
        except ValueError:  # a signature without a comma or not in base64, a body that is not text
            why = "its signature headers or its body cannot be read"
        else:
            return headers[ID]
    raise WebhookUnverified(why)


def sign(message_id: str, body: bytes, secrets: Sequence[str], now: datetime) -> dict[str, str]:
    """The headers that prove the body; one signature per secret, so that receivers can rotate."""
    at = now.astimezone(UTC)  # the library takes any other clock's digits for UTC
    signatures = (Webhook(secret).sign(message_id, at, body.decode()) for secret in secrets)
    return {ID: message_id, TIMESTAMP: str(int(at.timestamp())), SIGNATURE: " ".join(signatures)}
