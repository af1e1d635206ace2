"""Routes to follow a job: its record as it changes, its log, and the bundles of its failures."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Response, status
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.control.control import JobControl
from jobs.errors import JobNotFound, NoBundle, RecordUnreadable, StoreUnavailable
from jobs.model import Job
from service.access.guard import reading
from service.dependencies import FailureBundles, Jobs, Logs, Workers
from service.errors import keyed_responses
from service.schemas import JobLog, JobView

router = APIRouter(prefix="/exports", tags=["live"], dependencies=[Depends(reading)])

_POLL_S = 0.5

LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="The revision you have; events begin after it."),
]


def _existing(job_id: str, jobs: Jobs) -> Job:
    """Return the job; without one the answer is a problem, which it cannot be after the first event."""
    return jobs.get(job_id)


@router.get(
    "/{job_id}/events",
    response_class=EventSourceResponse,
    responses=keyed_responses(JobNotFound, RecordUnreadable),
)
async def events(
    job: Annotated[Job, Depends(_existing)],
    jobs: Jobs,
    workers: Workers,
    last_event_id: LastEventId = None,
) -> AsyncIterator[ServerSentEvent]:
    """Stream the job after every change, as events named `job`; an event named `end` is the last.

    An event's id is the job's revision. Comments are sent in between, so that the connection stays open.
    """
    sent_revision = last_event_id
    latest: Job | None = job
    while latest is not None:
        if str(latest.revision) != sent_revision:
            sent_revision = str(latest.revision)
            alive = await run_in_threadpool(workers.alive)
            yield ServerSentEvent(event="job", id=sent_revision, data=JobView.of(latest, alive))
        if latest.state.is_final:
            break
        latest = await _next_revision(latest, jobs)
    yield ServerSentEvent(event="end", data=latest.state if latest else "deleted")


async def _next_revision(known: Job, jobs: JobControl) -> Job | None:
    """Wait for the job's next revision and return it, or None if the job has been deleted."""
    while True:
        await asyncio.sleep(_POLL_S)
        try:
            if await run_in_threadpool(jobs.revision, known.id) != known.revision:
                return await run_in_threadpool(jobs.get, known.id)
        except StoreUnavailable:  # the client waits until the store is back
            continue
        except JobNotFound:
            return None


@router.get("/{job_id}/log", responses=keyed_responses(JobNotFound, RecordUnreadable))
def log(
    job_id: str, jobs: Jobs, logs: Logs, tower: TowerName | None = None, stage: Stage | None = None
) -> JobLog:
    """Return the latest lines that the ranks wrote, of one tower or stage or of all; kept for a week."""
    job = jobs.get(job_id)
    return JobLog(job_id=job.id, parts=logs.read(job.id, tower, stage))


@router.get(
    "/{job_id}/bundle",
    response_class=Response,
    responses={
        **keyed_responses(JobNotFound, NoBundle),
        status.HTTP_200_OK: {
            "description": "A zip: failure, spec, config, dim plan, versions, log, and files of the stages.",
            "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        },
    },
)
def bundle(job_id: str, jobs: Jobs, bundles: FailureBundles, tower: TowerName | None = None) -> Response:
    """Return the diagnostics of a tower's failure, or of an attempt that failed as a whole.

    They are kept for a week.
    """
    job = jobs.get(job_id)
    content = bundles.get(job.id, tower)
    if content is None:
        raise NoBundle(f"there is no bundle of {f'the {tower} tower of ' if tower else ''}job {job.id}")
    name = f"{job.id}-{tower or 'attempt'}.zip"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/zip", headers=headers)
