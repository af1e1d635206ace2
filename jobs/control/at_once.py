"""Accepting exports on an event loop, where nothing but Redis has to be waited for."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from exporter.spec import ExportSpec
from exporter.storage.open import local_path
from exporter.storage.uris import ANYWHERE, NO_RULES, uris_of
from jobs.control.control import NO_OPTIONS, NO_OWNER, JobControl, Owner
from jobs.ids import JobId
from jobs.request import JobOptions
from jobs.short_memory import NotAtHand
from jobs.stores.job_store import NewJob
from jobs.stores.redis_adding import AddCall


@dataclass(frozen=True)
class SubmitAtOnce:
    """The parts of `JobControl.submit` that an event loop can run.

    What would read a file of unknown size, ask an object store or parse a config raises NotAtHand instead,
    and nothing has been stored then: the job is submitted in a thread, as if this had not been tried.
    """

    jobs: JobControl  # whose planner, clock and look for files raise NotAtHand
    add_to_store: Callable[[AddCall], Awaitable[JobId | None]]

    def prepare(
        self,
        spec: ExportSpec,
        options: JobOptions = NO_OPTIONS,
        owner: Owner = NO_OWNER,
        *,
        force: bool = False,
    ) -> NewJob:
        """Do as `JobControl.prepare`, or raise NotAtHand."""
        if spec.release_gate is not None:  # its baseline is a job
            raise NotAtHand
        is_bound = owner.uris != NO_RULES or self.jobs.folders != ANYWHERE
        if is_bound and any(local_path(named.uri) is not None for named in uris_of(spec)):
            raise NotAtHand  # links on the way have to be followed
        return self.jobs.prepare(spec, options, owner, force=force)

    async def add(self, new: NewJob) -> JobId | None:
        """Store and enqueue a job, and return None; or return the job that is there instead."""
        return await self.jobs.queue.enqueue_new_async(
            new.job, lambda messages: self.add_to_store(AddCall(new, messages))
        )
