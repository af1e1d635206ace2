"""The synchronous client: REST calls that wait for their answers, which the command line uses too."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import httpx

from exporter.manifest import Manifest
from exporter.reports.comparison import Comparison
from exporter.spec import ExportSpec, TowerName
from exporter.stages import Stage
from exporter.towers.plan import PlanRequest
from jobs.control.releases import NO_LABELS, Release
from jobs.model import JobState
from service.client import calls
from service.client.calls import Call
from service.client.events import EventReader
from service.schemas import JobList, JobLog, JobView, ModelList, PlanView, Readiness

Result = TypeVar("Result")


class SlipwayClient:
    """Calls one service; every call opens its own connection, so that there is nothing to close."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        """Take the service's base URL, and an API key if the service requires one."""
        self._url = url.rstrip("/")
        self._api_key = api_key

    def submit(self, spec: ExportSpec, *, key: str | None = None) -> JobView:
        """Post an export; calls with the same idempotency `key` start a single job."""
        return self._send(calls.submit(spec, key))

    def plan(self, request: PlanRequest) -> PlanView:
        return self._send(calls.plan(request))

    def get(self, job_id: str) -> JobView:
        return self._send(calls.get(job_id))

    def get_if_changed(self, known: JobView) -> JobView:
        """Return the current job: the object `known` itself if nothing has changed."""
        return self._send(calls.get_if_changed(known))

    def page(self, *, limit: int, state: JobState | None = None, cursor: str | None = None) -> JobList:
        return self._send(calls.page(limit=limit, state=state, cursor=cursor))

    def cancel(self, job_id: str) -> JobView:
        return self._send(calls.cancel(job_id))

    def retry(self, job_id: str, *, key: str | None = None) -> JobView:
        return self._send(calls.retry(job_id, key))

    def delete(self, job_id: str) -> None:
        self._send(calls.delete(job_id))

    def log(self, job_id: str, tower: TowerName | None = None, stage: Stage | None = None) -> JobLog:
        return self._send(calls.log(job_id, tower, stage))

    def bundle(self, job_id: str, tower: TowerName | None = None) -> bytes:
        """Fetch the zip that a failure names in `bundle_url`."""
        return self._send(calls.bundle(job_id, tower))

    def manifest(self, job_id: str) -> Manifest:
        return self._send(calls.manifest(job_id))

    def diff(self, job_id: str) -> Comparison:
        """Return the comparison with the release that the job was judged against."""
        return self._send(calls.diff(job_id))

    def models(self, *, limit: int = 20, cursor: str | None = None) -> ModelList:
        return self._send(calls.models(limit=limit, cursor=cursor))

    def latest(self, model: str, labels: Mapping[str, str] = NO_LABELS) -> Release:
        """Return the newest release, or the newest with these labels."""
        return self._send(calls.latest(model, labels))

    def promoted(self, model: str) -> Release:
        return self._send(calls.promoted(model))

    def promote(self, model: str, job_id: str | None = None, *, force: bool = False) -> Release:
        """Promote a job's release, or the latest; with `force` even one that its gate does not bless."""
        return self._send(calls.promote(model, job_id, force=force))

    def roll_back(self, model: str) -> Release:
        return self._send(calls.roll_back(model))

    def ready(self) -> Readiness:
        return self._send(calls.ready())

    def events(self, job_id: str) -> Iterator[JobView]:
        """Yield the job after every change until it has ended; reconnect once if the connection breaks."""
        reader, call = EventReader(), calls.get(job_id)
        for last_try in (False, True):
            headers = {**calls.headers_of(call, self._api_key), **reader.headers}
            try:
                with (
                    self._connection() as http,
                    http.stream("GET", f"{call.path}/events", headers=headers) as answer,
                ):
                    if answer.is_error:
                        answer.read()
                        calls.refuse_problems(answer, self._url)
                    yield from (job for line in answer.iter_lines() if (job := reader.take(line)))
            except httpx.HTTPError as error:
                if last_try:
                    raise calls.unreachable(self._url, error) from error
            if reader.ended:
                return
        raise calls.cut_off(self._url, job_id)

    def _send(self, call: Call[Result]) -> Result:
        headers = calls.headers_of(call, self._api_key)
        try:
            with self._connection() as http:
                answer = http.request(
                    call.method, call.path, content=call.body, params=dict(call.query), headers=headers
                )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise calls.unreachable(self._url, error) from error
        return calls.result_of(call, answer, self._url)

    def _connection(self) -> httpx.Client:
        return httpx.Client(base_url=self._url, timeout=calls.TIMEOUT_S)
