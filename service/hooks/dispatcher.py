"""The senders: threads that turn the outbox into deliveries and deliveries into requests.

Any number of processes may run them. A delivery that is due is claimed in Redis for longer than a request
can take; deliveries that a killed process had claimed become due again.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from cloudevents.core.bindings.http import to_structured_event
from cloudevents.core.v1.event import CloudEvent

from jobs.errors import StoreUnavailable
from jobs.events import JobEvent
from jobs.hooks.deliveries import Delivery, DeliveryState, Try
from jobs.hooks.redis_book import RedisBook
from jobs.hooks.redis_outbox import Claim, RedisOutbox
from jobs.hooks.subscriptions import Subscription
from service.hooks.poster import Poster
from service.hooks.settings import HookSettings
from service.hooks.signatures import sign
from telemetry.logging import logger

log = logger(__name__)

SOURCE = "/exports"

_CLAIM_PER_TIMEOUT = 2  # so that a request has ended long before its claim does
_PRUNE_EVERY_S = 60.0
_STOP_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Dispatcher:
    """The single steps of a sender, which repeats them as long as deliveries are due."""

    outbox: RedisOutbox
    subscriptions: RedisBook[Subscription]
    poster: Poster
    settings: HookSettings

    def fan_out(self) -> None:
        """Turn all events in the outbox into deliveries, one for each receiver."""
        while (text := self.outbox.next_entry()) is not None:
            self.outbox.fan_out(text, self.subscriptions.all())

    def send_next(self) -> bool:
        """Send the delivery that has waited longest; return False if none is due."""
        claim = self.outbox.claim(self.settings.callback_timeout * _CLAIM_PER_TIMEOUT)
        if claim is None:
            return False
        secrets = self._secrets(claim.delivery)
        if secrets:
            self._send(claim, secrets)
        else:
            self._drop(claim)
        return True

    def prune(self) -> None:
        self.outbox.prune(self.settings.delivery_memory)

    def _send(self, claim: Claim, secrets: tuple[str, ...]) -> None:
        delivery, now = claim.delivery, self.outbox.now()
        content_type, body = cloud_event(delivery.event)
        headers = {"content-type": content_type, **sign(delivery.id, body, secrets, now)}
        begun = time.monotonic()
        answer = self.poster.post(delivery.url, headers, body)
        seconds = round(time.monotonic() - begun, 3)
        done = Try(at=self.outbox.now(), seconds=seconds, status=answer.status, error=answer.error)
        if answer.unsubscribes:  # before the result is stored: after a restart in between it is done again
            self._unsubscribe(delivery)
        jitter = random.uniform(-1, 1)  # noqa: S311 (spreads load; nothing is secret)
        new = delivery.after_try(done, answer, pauses=self.settings.callback_pauses, jitter=jitter)
        kept = self.outbox.save_result(claim, new)
        log.info(
            "callback_tried",
            job_id=delivery.event.data.job,
            delivery=delivery.id,
            status=answer.status,
            state=new.state,
            kept=kept,
        )

    def _drop(self, claim: Claim) -> None:
        has_ended = claim.delivery.subscription_id is not None or self._is_gone(claim.delivery)
        reason = "its receiver is unsubscribed" if has_ended else "SLIPWAY_CALLBACK_SECRETS is not set"
        dropped = claim.delivery.end(DeliveryState.DROPPED, reason, self.outbox.now())
        self.outbox.save_result(claim, dropped)

    def _secrets(self, delivery: Delivery) -> tuple[str, ...]:
        """Return the secrets to sign with, or none if the receiver is to get no more events."""
        if delivery.subscription_id is not None:
            subscription = self.subscriptions.get(delivery.subscription_id)
            return (subscription.secret,) if subscription else ()
        if self._is_gone(delivery):
            return ()
        return tuple(secret.get_secret_value() for secret in self.settings.callback_secrets)

    def _is_gone(self, delivery: Delivery) -> bool:
        return self.outbox.is_gone(delivery.event.data.job)

    def _unsubscribe(self, delivery: Delivery) -> None:
        log.warning("callback_unsubscribed", url=delivery.url, subscription=delivery.subscription_id)
        if delivery.subscription_id is not None:
            self.subscriptions.delete(delivery.subscription_id)
        else:
            self.outbox.mark_gone(delivery.event.data.job, self.settings.delivery_memory)


class Senders:
    """Threads that run a dispatcher until they are stopped; a store that is away is waited for."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        """Does nothing before `start`."""
        self._dispatcher = dispatcher
        self._poll_s = dispatcher.settings.callback_poll.total_seconds()
        self._stopping = threading.Event()
        count = dispatcher.settings.callback_senders
        loops: list[Callable[[], None]] = [self._send] * count + [self._maintain_outbox] * (count > 0)
        self._threads = [threading.Thread(target=loop, name="callbacks", daemon=True) for loop in loops]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish the requests under way, within seconds; the other deliveries wait in Redis."""
        self._stopping.set()
        deadline = time.monotonic() + _STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _send(self) -> None:
        while not self._stopping.is_set():
            if not self._run_step(self._dispatcher.send_next):
                self._stopping.wait(self._poll_s)

    def _maintain_outbox(self) -> None:
        """Fan out new events at once, and delete old deliveries now and then."""
        pruned_at = 0.0
        while not self._stopping.wait(self._poll_s):
            self._run_step(self._dispatcher.fan_out)
            if time.monotonic() - pruned_at > _PRUNE_EVERY_S:
                pruned_at = time.monotonic()
                self._run_step(self._dispatcher.prune)

    def _run_step(self, step: Callable[[], bool | None]) -> bool:
        """Run one step and log its errors; return whether there may be more to do at once."""
        try:
            return bool(step())
        except StoreUnavailable as error:
            log.warning("job_store_away", message=error.message)
        except Exception:
            log.exception("background_failed", thread="callbacks")
        return False


def cloud_event(event: JobEvent) -> tuple[str, bytes]:
    """Return the content type and the body of an event as sent: the same bytes with every try."""
    attributes = {
        "specversion": "1.0",
        "id": event.id,
        "source": SOURCE,
        "type": str(event.type),
        "subject": event.data.job,
        "time": event.time,
        "datacontenttype": "application/json",
    }
    message = to_structured_event(CloudEvent(attributes, event.data.model_dump(mode="json")))
    return message.headers["content-type"], message.body
