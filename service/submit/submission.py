"""Accepting an export for a caller: on the event loop if nothing but Redis is waited for, else in a thread.

Handing a request to a thread and its answer back takes about a third of the time that a job takes.
"""

from dataclasses import dataclass, field

from fastapi import Response
from fastapi.concurrency import run_in_threadpool

from jobs.control.at_once import SubmitAtOnce
from jobs.control.control import JobControl
from jobs.control.idempotency import Answers
from jobs.fleet.roster import Fleet, ReadAlive, WorkerNotice
from jobs.request import ExportRequest
from jobs.short_memory import NotAtHand
from jobs.stores.job_store import NewJob
from service.access.callers import Caller
from service.audit import record
from service.hooks.receivers import require_usable_callback
from service.hooks.settings import HookSettings
from service.idempotency import answer_once, answer_with
from service.schemas import JobView
from service.submit.unbroken import Unbroken


@dataclass(frozen=True)
class AtOnce:
    """All that accepting exports on the event loop needs, created once per application."""

    submit: SubmitAtOnce
    find_alive: ReadAlive  # the workers alive a moment ago; raises NotAtHand if they would have to be read
    unbroken: Unbroken = field(default_factory=Unbroken)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """All that accepting an export needs of the service, as one dependency: each costs its share of a job."""

    caller: Caller
    jobs: JobControl
    answers: Answers
    workers: Fleet
    callbacks: HookSettings  # where events may be sent
    at_once: AtOnce | None

    async def accept(self, request: ExportRequest, key: str | None) -> Response:
        """Accept an export, and answer with its job; the same request with the same `key` only once."""
        require_usable_callback(request.callback_url, self.callbacks)
        if key is None and self.at_once is not None:
            try:
                new, alive = self._prepare(self.at_once, request)
            except NotAtHand:
                pass
            else:
                return answer_with(await self.at_once.unbroken.run(self._add(self.at_once, new, alive)))
        return await run_in_threadpool(
            answer_once,
            self.answers,
            self.caller,
            key,
            request.model_dump_json,
            lambda: self._submit(request),
        )

    def submit(self, request: ExportRequest) -> JobView:
        """Accept an export in the calling thread."""
        require_usable_callback(request.callback_url, self.callbacks)
        return self._submit(request)

    def _submit(self, request: ExportRequest) -> JobView:
        caller = self.caller
        job = self.jobs.submit(request.spec, request.options, caller.owner, force=request.force)
        record(caller, "submit", job.id)
        return JobView.of(job, self.workers.alive())

    def _prepare(self, at_once: AtOnce, request: ExportRequest) -> tuple[NewJob, tuple[WorkerNotice, ...]]:
        alive = Fleet(at_once.find_alive, shows_jobs=self.workers.shows_jobs).alive()
        new = at_once.submit.prepare(request.spec, request.options, self.caller.owner, force=request.force)
        return new, alive

    async def _add(self, at_once: AtOnce, new: NewJob, alive: tuple[WorkerNotice, ...]) -> JobView:
        instead = await at_once.submit.add(new)
        job = new.job if instead is None else await run_in_threadpool(self.jobs.finish, new, instead)
        record(self.caller, "submit", job.id)
        return JobView.of(job, alive)
