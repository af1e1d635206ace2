"""Finding jobs by words: the newest are looked at, a bounded number for each page."""

from dataclasses import dataclass

from jobs.control.control import JobControl
from jobs.ids import JobId
from jobs.model import Job, JobState

PAGE = 50
_STEP = 200  # jobs read together while searching
_LOOKED_AT = 1000  # jobs read for one page


@dataclass(frozen=True)
class Found:
    """Jobs, newest first; `next` goes on after the last one looked at."""

    jobs: tuple[Job, ...]
    next: JobId | None


def find(jobs: JobControl, words: str, state: JobState | None, before: str | None) -> Found:
    """Up to a page of jobs that hold every one of `words` in what they name."""
    wanted = words.casefold().split()
    if not wanted:
        page = jobs.page(limit=PAGE, state=state, before=before)
        return Found(page.jobs, page.next)
    found: list[Job] = []
    for _ in range(_LOOKED_AT // _STEP):
        page = jobs.page(limit=_STEP, state=state, before=before)
        for job in page.jobs:
            if _holds(job, wanted):
                found.append(job)
                if len(found) == PAGE:
                    return Found(tuple(found), job.id)
        before = page.next
        if before is None:
            return Found(tuple(found), None)
    return Found(tuple(found), JobId(before) if before else None)


def _holds(job: Job, wanted: list[str]) -> bool:
    spec = job.spec
    failures = [job.failure, *(tower.failure for tower in job.towers)]
    named = [
        job.id,
        job.model,
        job.owner,
        *job.labels.values(),
        spec.checkpoint_uri,
        spec.output_uri,
        job.config_uri,
        spec.item_input_uri,
        spec.sample_input_uri,
        spec.mode,
        spec.device,
        job.lease.worker if job.lease else None,
        *(failure.code for failure in failures if failure),
    ]
    text = " ".join(each for each in named if each).casefold()
    return all(word in text for word in wanted)
