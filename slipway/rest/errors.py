"""Errors of calls to a service.

SlipwayError
├── ServiceUnreachable  no Slipway service answers at the URL (retryable)
├── DownloadFailed      a file did not arrive as the manifest says, or cannot be written
├── SignatureRefused    the artifact is not signed, or not by the given key
├── StillRunning        the job has not ended in the time that the caller gave it (retryable)
└── RequestRefused      the service answered with a problem, whose code this error carries
"""

from http import HTTPStatus

from slipway.rest.answers import JobView, Problem


class SlipwayError(Exception):
    """A call that failed: a stable `code`, one sentence, and what to do."""

    code = "slipway_error"
    retryable = False  # True if the same call can succeed later
    advice = ""  # the default of `hint`

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        """Say what happened (`message`), what to do (`hint`) and at which field, file or URL (`where`)."""
        super().__init__(message)
        self.message, self.hint, self.where = message, hint or self.advice, where


class ServiceUnreachable(SlipwayError):
    """No Slipway service answers at the URL."""

    code = "service_unreachable"
    advice = "start the service, or correct --url or SLIPWAY_URL"
    retryable = True


class DownloadFailed(SlipwayError):
    """A file did not arrive as the manifest says, or cannot be written; nothing is left of the download."""

    code = "download_failed"
    advice = "download the artifact again"


class SignatureRefused(SlipwayError):
    """The artifact is not signed, or not by the key that is to verify it."""

    code = "signature_refused"
    advice = "find out who wrote the artifact before you use any of it"


class StillRunning(SlipwayError):
    """The job has not ended in the time that the caller gave it; it goes on."""

    code = "still_running"
    advice = "wait longer, or cancel the job"
    retryable = True

    def __init__(self, job: JobView) -> None:
        """Keep the job as it was when the time was over."""
        super().__init__(f"job {job.id} is still {job.state}")
        self.job = job


class RequestRefused(SlipwayError):
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
