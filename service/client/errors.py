"""Errors of the clients of the REST API.

ExportError
├── ServiceUnreachable  no Slipway service answers at the URL (retryable)
└── RequestRefused      the service answered with a problem, whose code this error carries
"""

from http import HTTPStatus

from exporter.errors import ExportError
from service.schemas import Problem


class ServiceUnreachable(ExportError):
    """No Slipway service answers at the URL."""

    code = "service_unreachable"
    advice = "start the service, or correct --url or SLIPWAY_URL"
    retryable = True


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
