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
    retryable = True


class RequestRefused(ExportError):
    """The service answered with a problem, whose code this error carries."""

    code = "request_refused"

    def __init__(self, problem: Problem) -> None:
        """Say what the service said."""
        super().__init__(problem.detail, hint=problem.hint, where=problem.where)
        self.code = problem.code
        self.status = problem.status
        self.retryable = problem.status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
