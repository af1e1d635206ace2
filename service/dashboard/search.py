"""Searching jobs by words, newest first: each page reads a limited number of jobs."""

from dataclasses import dataclass

from jobs.control.control import JobControl
from jobs.ids import JobId
from jobs.model import Job, JobState

PAGE = 50
_STEP = 200  # jobs read together while searching
_MOST_READ = 1000  # jobs read for one page


@dataclass(frozen=True)
class JobMatches:
    """Jobs that match a search, newest first; `next` continues after the last job that was read."""

    jobs: tuple[Job, ...]
    next: JobId | None


def find(jobs: JobControl, words: str, state: JobState | None, before: str | None) -> JobMatches:
    """Find up to a page of jobs whose ids, names, URIs or error codes hold all the `words`."""
    search_words = words.casefold().split()
    if not search_words:
        page = jobs.page(limit=PAGE, state=state, before=before)
        return JobMatches(page.jobs, page.next)
    found: list[Job] = []
    for _ in range(_MOST_READ // _STEP):
        page = jobs.page(limit=_STEP, state=state, before=before)
        for job in page.jobs:
            if _holds_all(job, search_words):
                found.append(job)
                if len(found) == PAGE:
                    return JobMatches(tuple(found), job.id)
        before = page.next
        if before is None or len(page.jobs) < _STEP:  # short: the caller sees few of the jobs that were read
            break
    return JobMatches(tuple(found), JobId(before) if before else None)


def _holds_all(job: Job, words: list[str]) -> bool:
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
    return all(word in text for word in words)
