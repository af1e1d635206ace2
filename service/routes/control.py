"""Routes that cancel, retry and delete exports."""

from fastapi import APIRouter, Response, status

from exporter.errors import UriNotAllowed
from jobs.errors import (
    ConfigNotFound,
    ConfigsTooLarge,
    JobFinished,
    JobNotFinished,
    JobNotFound,
    JobNotRetryable,
    KeyInFlight,
    KeyReused,
    QuotaExceeded,
    RecordUnreadable,
    TorchUnserved,
)
from service.access.guard import Admin, Submitter
from service.audit import record
from service.dependencies import Jobs, KeptAnswers, Workers
from service.errors import keyed_responses
from service.idempotency import IdempotencyKey, answer_once
from service.schemas import JobView

router = APIRouter(prefix="/exports", tags=["exports"])


@router.post(
    "/{job_id}/cancel",
    status_code=status.HTTP_202_ACCEPTED,
    responses=keyed_responses(JobNotFound, JobFinished, RecordUnreadable),
)
def cancel(job_id: str, jobs: Jobs, caller: Submitter) -> JobView:
    """Cancel a job that has not been started, at once; stop a running one within seconds.

    A job that is queued between two attempts is cancelled once a worker has cleaned up after the earlier one.
    """
    job = jobs.cancel(job_id)
    record(caller, "cancel", job.id)
    return JobView.of(job)


@router.post(
    "/{job_id}/retry",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=JobView,
    responses=keyed_responses(
        JobNotFound,
        JobNotRetryable,
        UriNotAllowed,
        KeyReused,
        KeyInFlight,
        QuotaExceeded,
        ConfigsTooLarge,
        ConfigNotFound,
        RecordUnreadable,
        TorchUnserved,
    ),
)
def retry(
    job_id: str,
    jobs: Jobs,
    caller: Submitter,
    answers: KeptAnswers,
    workers: Workers,
    key: IdempotencyKey = None,
) -> Response:
    """Export the failed towers of a job again, as a new job with an artifact of its own.

    The artifact of the first job stays as it is; a model's release combines the towers of both.
    """

    def carry_out() -> JobView:
        job = jobs.retry(job_id, caller.owner)
        record(caller, "retry", f"{job_id} as {job.id}")
        return JobView.of(job, workers.alive())

    return answer_once(answers, caller, key, lambda: f"retry {job_id}", carry_out)


@router.delete(
    "/{job_id}",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=keyed_responses(JobNotFound, JobNotFinished, RecordUnreadable),
)
def delete(job_id: str, jobs: Jobs, caller: Admin) -> None:
    """Delete the record of a finished job. Its artifact stays."""
    jobs.remove(job_id)
    record(caller, "delete", job_id)
