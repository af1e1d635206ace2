"""What a caller of the REST API can meet.

ExportError
├── ServiceUnreachable  nothing answers at the service's URL (retryable)
└── RequestRefused      the service answered with a problem, whose code this error carries
"""

from http import HTTPStatus

from exporter.errors import ExportError
from service.schemas import Problem


class ServiceUnreachable(ExportError):
    """Nothing answers at the service's URL."""

    code = "service_unreachable"
    advice = "start the service, or correct --url or SLIPWAY_URL"
    retryable = True


class RequestRefused(ExportError):
    """The service answered with a problem, whose code this error carries."""

    code = "request_refused"
    advice = "correct --url or SLIPWAY_URL"

    def __init__(self, problem: Problem) -> None:
        """Say what the service said."""
        super().__init__(problem.detail, hint=problem.hint, where=problem.where)
        if problem.code != self.code:
            self.hint = problem.hint  # the service's own error: no advice of ours fits it
        self.code = problem.code
        self.status = problem.status
        self.retryable = problem.status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
