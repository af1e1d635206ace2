"""Errors about webhooks, incoming and outgoing, as a branch of the exporter's tree of errors.

ExportError
└── HookError
    ├── WebhookUnverified     an incoming webhook is not signed with a known secret, or too old
    ├── InvalidEvent          an incoming webhook's body is not a CloudEvent about training
    ├── TriggerNotFound       no trigger has this name
    ├── TriggerUnfilled       an event lacks a value that a trigger's template needs
    ├── CallbackRefused       events cannot be sent to this URL
    ├── SubscriptionNotFound  no subscription has this id
    ├── DeliveryNotFound      no delivery has this id
    ├── DeliveryBusy          the delivery is being sent right now (retryable)
    └── DeliveryUnsendable    the delivery's subscription, and its secret, have been deleted
"""

from exporter.errors import ExportError


class HookError(ExportError):
    """An error about a webhook, not about an export."""

    code = "hook_error"
    advice = "see the message"


class WebhookUnverified(HookError):
    """An incoming webhook is not signed with a known secret, or too old."""

    code = "webhook_unverified"
    advice = "sign it as Standard Webhooks says, with a secret of SLIPWAY_WEBHOOK_SECRETS and a correct clock"

    def __init__(self, why: str) -> None:
        """Say why the signature is not accepted."""
        super().__init__(
            f"the webhook is not accepted: {why}",
            hint="sign as Standard Webhooks says, with a SLIPWAY_WEBHOOK_SECRETS secret and a correct clock",
        )


class InvalidEvent(HookError):
    """An incoming webhook's body is not a CloudEvent about training."""

    code = "invalid_event"
    advice = "correct what the message names; send the event in binary or structured mode"

    def __init__(self, why: str, where: str = "") -> None:
        """Say why the body is not such an event."""
        super().__init__(
            f"this is not a CloudEvent 1.0 about training: {why}",
            hint="send it in binary mode (ce- headers) or structured mode (application/cloudevents+json)",
            where=where,
        )


class TriggerNotFound(HookError):
    """No trigger has this name."""

    code = "trigger_not_found"
    advice = "list the triggers"

    def __init__(self, name: str) -> None:
        """Name the trigger."""
        super().__init__(f"there is no trigger {name}", hint="list them with GET /triggers")


class TriggerUnfilled(HookError):
    """An event lacks a value that a trigger's template needs."""

    code = "trigger_unfilled"
    advice = "correct the template, or the training platform's events; then send the event again"


class CallbackRefused(HookError):
    """Events cannot be sent to this URL."""

    code = "callback_refused"
    advice = "give an http or https URL on the internet; for a private network ask the operator"


class SubscriptionNotFound(HookError):
    """No subscription has this id."""

    code = "subscription_not_found"
    advice = "list the subscriptions"

    def __init__(self, subscription_id: str) -> None:
        """Name the id."""
        super().__init__(
            f"there is no subscription {subscription_id}", hint="list them with GET /subscriptions"
        )


class DeliveryNotFound(HookError):
    """No delivery has this id."""

    code = "delivery_not_found"
    advice = "list the deliveries; those that ended are kept for some days"

    def __init__(self, delivery_id: str) -> None:
        """Name the id."""
        super().__init__(
            f"there is no delivery {delivery_id}",
            hint="list them with GET /deliveries; those that ended are kept for some days",
        )


class DeliveryBusy(HookError):
    """The delivery is being sent right now."""

    code = "delivery_busy"
    advice = "try again in a minute"
    retryable = True

    def __init__(self, delivery_id: str) -> None:
        """Name the id."""
        super().__init__(f"delivery {delivery_id} is being sent", hint="try again in a minute")


class DeliveryUnsendable(HookError):
    """The delivery's subscription, and its secret, have been deleted."""

    code = "delivery_unsendable"
    advice = "subscribe again for later events"

    def __init__(self, delivery_id: str) -> None:
        """Name the id."""
        super().__init__(
            f"the subscription of delivery {delivery_id} has been deleted, with the secret to sign with",
            hint="subscribe again: later events will be sent to that subscription",
        )
