"""Watch jobs from outside: every state that their records go through."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from exporter.stages import Stage
from jobs.errors import JobNotFound, StoreUnavailable
from jobs.ids import JobId
from jobs.model import MOVES, Job, JobState
from jobs.stores.redis_store import RedisJobStore

_LOOK_S = 0.02
_ORDER = list(Stage)


@dataclass
class Observer:
    """The records of the jobs that it watches, in each revision that it has seen."""

    store: RedisJobStore
    seen: dict[JobId, list[Job]] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def watch(self, job_id: JobId) -> None:
        self.seen[job_id] = []

    def latest(self, job_id: JobId) -> Job | None:
        return self.seen[job_id][-1] if self.seen[job_id] else None

    def run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            for job_id in list(self.seen):
                with suppress(JobNotFound, StoreUnavailable):
                    self._look(job_id)

    def _look(self, job_id: JobId) -> None:
        before = self.latest(job_id)
        if before is None or self.store.revision(job_id) != before.revision:
            self.seen[job_id].append(self.store.get(job_id))

    def stop(self) -> None:
        self._stopping.set()


def steps_back(seen: list[Job]) -> list[str]:
    """Return descriptions of the steps in which a record went backwards."""
    wrong = []
    for before, after in itertools.pairwise(seen):
        step = f"revision {before.revision} ({before.state}) to {after.revision} ({after.state})"
        if after.revision <= before.revision or after.attempt < before.attempt:
            wrong.append(f"{step}: an older record")
        if before.state.is_final and after.state is not before.state:
            wrong.append(f"{step}: it had ended")
        if not _can_become(before.state, after.state):
            wrong.append(f"{step}: no such move")
        wrong += [f"{step}: {each}" for each in _stages_back(before, after)]
    return wrong


def _can_become(state: JobState, later: JobState) -> bool:
    """True if a sequence of moves leads there; some may have been too quick to be seen."""
    reached, pending = {state}, [state]
    while pending:
        for each in MOVES.get(pending.pop(), frozenset()) - reached:
            reached.add(each)
            pending.append(each)
    return later in reached


def _stages_back(before: Job, after: Job) -> Iterator[str]:
    if before.attempt != after.attempt:
        return
    for old, new in zip(before.towers, after.towers, strict=True):
        if old.stage and (new.stage is None or _ORDER.index(new.stage) < _ORDER.index(old.stage)):
            yield f"{new.label} went from {old.stage} to {new.stage}"


@contextmanager
def observing(store: RedisJobStore) -> Iterator[Observer]:
    observer = Observer(store)
    thread = threading.Thread(target=observer.run, name="observer", daemon=True)
    thread.start()
    try:
        yield observer
    finally:
        observer.stop()
        thread.join(10)


def wait_for_end(observer: Observer, job_id: JobId, seconds: float) -> Job:
    """Return the job once it has ended."""
    deadline = time.monotonic() + seconds
    while (job := observer.latest(job_id)) is None or not job.state.is_final:
        assert time.monotonic() < deadline, (
            f"not ended within {seconds:g} s: {job and job.model_dump_json(exclude={'spec'})}"
        )
        time.sleep(0.05)
    return job
