"""The REST calls as functions: what `slipway submit`, `watch` and `list` use. No FastAPI, no torch."""

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from pydantic import ValidationError

from exporter.spec import ExportSpec
from jobs.model import JobState
from service.client.errors import RequestRefused, ServiceUnreachable
from service.schemas import JobList, JobView, Problem, Readiness

_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes


class SlipwayClient:
    """Calls one service."""

    def __init__(self, url: str) -> None:
        """Take the service's base URL."""
        self._url = url.rstrip("/")

    def submit(self, spec: ExportSpec) -> JobView:
        return JobView.model_validate_json(self._call("POST", "/exports", spec.model_dump_json()).body)

    def get(self, job_id: str) -> JobView:
        return JobView.model_validate_json(self._call("GET", _path_of(job_id)).body)

    def get_if_changed(self, known: JobView) -> JobView:
        """The job as it is now; `known` itself when that is still so."""
        headers = {"If-None-Match": f'"{known.revision}"'}
        answer = self._call("GET", _path_of(known.id), headers=headers)
        if answer.status == HTTPStatus.NOT_MODIFIED:
            return known
        return JobView.model_validate_json(answer.body)

    def page(self, *, limit: int, state: JobState | None = None, cursor: str | None = None) -> JobList:
        given = {"limit": str(limit), "state": state, "cursor": cursor}
        query = urlencode({name: value for name, value in given.items() if value is not None})
        return JobList.model_validate_json(self._call("GET", f"/exports?{query}").body)

    def cancel(self, job_id: str) -> JobView:
        return JobView.model_validate_json(self._call("POST", f"{_path_of(job_id)}/cancel").body)

    def ready(self) -> Readiness:
        return Readiness.model_validate_json(self._call("GET", "/readyz").body)

    def _call(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> _Answer:
        address = urlsplit(self._url)
        sent = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
        try:
            connection = _connect(address)
            try:
                connection.request(method, address.path + path, body and body.encode(), sent)
                response = connection.getresponse()
                answer = _Answer(response.status, response.read())
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServiceUnreachable(
                f"{self._url} does not answer: {error}",
                hint="start it with `make up`, or name another with --url or SLIPWAY_URL",
                where=self._url,
            ) from error
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise RequestRefused(_problem(answer, self._url))
        return answer


def _path_of(job_id: str) -> str:
    return f"/exports/{quote(job_id, safe='')}"


def _connect(address: SplitResult) -> http.client.HTTPConnection:
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError("it is no http or https URL")
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    return kind(address.hostname, address.port, timeout=_TIMEOUT_S)


def _problem(answer: _Answer, url: str) -> Problem:
    try:
        return Problem.model_validate_json(answer.body)
    except ValidationError:  # from a proxy, or another program
        detail = f"{url} answered with status {answer.status} and no problem description"
        return Problem(
            type="about:blank", title="", status=answer.status, detail=detail, code=RequestRefused.code
        )
