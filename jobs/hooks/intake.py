"""Receive training events: find the triggers that an event matches, and start each trigger's job once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from exporter.errors import ExportError
from exporter.outcome import Failure
from jobs.hooks.errors import WebhookUnverified
from jobs.hooks.receipts import Noted, Receipt, Start
from jobs.hooks.redis_book import RedisBook
from jobs.hooks.redis_receipts import RedisReceipts
from jobs.hooks.training import TrainingEvent
from jobs.hooks.triggers import Trigger
from jobs.ids import JobId, new_job_id
from jobs.model import Job
from jobs.request import ExportRequest

_REPLAY_WINDOW = timedelta(minutes=15)  # longer than a signature stays valid

Submit = Callable[[Trigger, ExportRequest, JobId], Job]  # the trigger, its request, and the id of the new job


@dataclass(frozen=True)
class Intake:
    """Receives training events and starts their jobs."""

    triggers: RedisBook[Trigger]
    receipts: RedisReceipts
    submit: Submit
    now: Callable[[], datetime]

    def receive(self, event: TrainingEvent) -> tuple[Receipt | None, bool]:
        """Start the event's jobs once; return its receipt and whether the event came before.

        The receipt is None if no trigger matches. A repeated event keeps the jobs that it started. A failed
        start is tried again with the trigger as it is now. Raise errors that may not recur when the same
        event is sent again.
        """
        known = self.receipts.find(event.source, event.id)
        receipt = known or self._plan_starts(event)
        if receipt is None:
            return None, False
        if known is None:
            standing = self.receipts.open_receipt(receipt)
            known, receipt = (None if standing is receipt else standing), standing
        return self._start_jobs(receipt, event), known is not None

    def refuse_replays(self, message_id: str, event: TrainingEvent, body: bytes) -> None:
        """Raise WebhookUnverified if this webhook's id came with another event before.

        In binary mode the event's attributes are headers, which the signature does not cover.
        """
        attributes = event.model_dump_json(exclude={"data"}).encode()
        if not self.receipts.bind(message_id, attributes + body, _REPLAY_WINDOW):
            raise WebhookUnverified("its webhook-id came with another event before")

    def _start_jobs(self, receipt: Receipt, event: TrainingEvent) -> Receipt:
        """Return the receipt after trying every start; save finished starts even if the next one raises."""
        done = receipt
        try:
            for number, start in enumerate(receipt.starts):
                starts = (*done.starts[:number], self._start_job(start, event), *done.starts[number + 1 :])
                done = done.model_copy(update={"starts": starts})
        finally:
            if done != receipt:
                done = self.receipts.update_starts(done)
        return done

    def _plan_starts(self, event: TrainingEvent) -> Receipt | None:
        fitting = [trigger for trigger in self.triggers.all() if not trigger.find_misfits(event)]
        if not fitting:
            return None
        starts = tuple(Start(trigger=trigger.name, job=new_job_id()) for trigger in fitting)
        return Receipt(source=event.source, id=event.id, starts=starts)

    def _start_job(self, start: Start, event: TrainingEvent) -> Start:
        if start.started:
            return start
        trigger = self.triggers.get(start.trigger)
        if trigger is None:
            return start
        done = self._submit(trigger, start, event)
        job = done.job if done.started else None
        noted = Noted(at=self.now(), source=event.source, event=event.id, job=job, failure=done.failure)
        self.receipts.note(trigger.name, noted)
        return done

    def _submit(self, trigger: Trigger, start: Start, event: TrainingEvent) -> Start:
        try:
            job = self.submit(trigger, trigger.template.fill(event), start.job)
        except ExportError as error:
            if error.retryable:
                raise
            return start.model_copy(update={"failure": Failure.of(error)})
        return start.model_copy(update={"job": job.id, "started": True, "failure": None})
