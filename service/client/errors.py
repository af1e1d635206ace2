"""Errors of the clients of the REST API.

ExportError
├── ServiceUnreachable  no Slipway service answers at the URL (retryable)
├── DownloadFailed      a file did not arrive as the manifest says, or cannot be written
├── StillRunning        the job has not ended in the time that the caller gave it (retryable)
└── RequestRefused      the service answered with a problem, whose code this error carries
"""

from http import HTTPStatus

from exporter.errors import ExportError
from service.schemas import JobView, Problem


class ServiceUnreachable(ExportError):
    """No Slipway service answers at the URL."""

    code = "service_unreachable"
    advice = "start the service, or correct --url or SLIPWAY_URL"
    retryable = True


class DownloadFailed(ExportError):
    """A file did not arrive as the manifest says, or cannot be written; nothing is left of the download."""

    code = "download_failed"
    advice = "download the artifact again"


class StillRunning(ExportError):
    """The job has not ended in the time that the caller gave it; it goes on."""

    code = "still_running"
    advice = "wait longer, or cancel the job"
    retryable = True

    def __init__(self, job: JobView) -> None:
        """Keep the job as it was when the time was over."""
        super().__init__(f"job {job.id} is still {job.state}")
        self.job = job


class RequestRefused(ExportError):
    """The service answered with a problem, whose code this error carries."""

    code = "request_refused"
    advice = "correct --url or SLIPWAY_URL"

    def __init__(self, problem: Problem) -> None:
        """Take message, hint, code and status from the service's answer."""
        super().__init__(problem.detail, hint=problem.hint, where=problem.where)
        if problem.code != self.code:
            self.hint = problem.hint  # an error of the service: the advice of this class does not fit
        self.code = problem.code
        self.status = problem.status
        self.retryable = problem.status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
