"""Signing and verifying webhooks by the Standard Webhooks scheme: id, time and body with a shared secret."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook, WebhookVerificationError

from jobs.hooks.errors import WebhookUnverified

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"


def verify(headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> str:
    """Return the message's id, if it was signed with one of the secrets within the last five minutes.

    Raises:
        WebhookUnverified: the message is not signed, or with another secret, or too long ago.
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
    """Return the headers that sign the body: one signature per secret, so that receivers can rotate."""
    at = now.astimezone(UTC)  # the library takes any other clock's digits for UTC
    signatures = (Webhook(secret).sign(message_id, at, body.decode()) for secret in secrets)
    return {ID: message_id, TIMESTAMP: str(int(at.timestamp())), SIGNATURE: " ".join(signatures)}
