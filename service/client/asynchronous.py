"""The asynchronous client: the REST calls for programs that do other things while they wait."""

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Self, TypeVar

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


class AsyncSlipwayClient:
    """Calls one service: `async with AsyncSlipwayClient(url) as slipway: …`."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        """Take the service's base URL, and an API key if the service requires one."""
        self._url = url.rstrip("/")
        self._api_key = api_key
        self._http = httpx.AsyncClient(base_url=self._url, timeout=calls.TIMEOUT_S)

    async def __aenter__(self) -> Self:
        """Keep connections open until the block ends."""
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        await self._http.__aexit__(kind, error, trace)

    async def submit(self, spec: ExportSpec, *, key: str | None = None) -> JobView:
        """Post an export; calls with the same idempotency `key` start a single job."""
        return await self._send(calls.submit(spec, key))

    async def plan(self, request: PlanRequest) -> PlanView:
        return await self._send(calls.plan(request))

    async def get(self, job_id: str) -> JobView:
        return await self._send(calls.get(job_id))

    async def get_if_changed(self, known: JobView) -> JobView:
        """Return the current job: the object `known` itself if nothing has changed."""
        return await self._send(calls.get_if_changed(known))

    async def page(self, *, limit: int, state: JobState | None = None, cursor: str | None = None) -> JobList:
        return await self._send(calls.page(limit=limit, state=state, cursor=cursor))

    async def cancel(self, job_id: str) -> JobView:
        return await self._send(calls.cancel(job_id))

    async def retry(self, job_id: str, *, key: str | None = None) -> JobView:
        return await self._send(calls.retry(job_id, key))

    async def delete(self, job_id: str) -> None:
        await self._send(calls.delete(job_id))

    async def log(self, job_id: str, tower: TowerName | None = None, stage: Stage | None = None) -> JobLog:
        return await self._send(calls.log(job_id, tower, stage))

    async def bundle(self, job_id: str, tower: TowerName | None = None) -> bytes:
        """Fetch the zip that a failure names in `bundle_url`."""
        return await self._send(calls.bundle(job_id, tower))

    async def manifest(self, job_id: str) -> Manifest:
        return await self._send(calls.manifest(job_id))

    async def diff(self, job_id: str) -> Comparison:
        """Return the comparison with the release that the job was judged against."""
        return await self._send(calls.diff(job_id))

    async def models(self, *, limit: int = 20, cursor: str | None = None) -> ModelList:
        return await self._send(calls.models(limit=limit, cursor=cursor))

    async def latest(self, model: str, labels: Mapping[str, str] = NO_LABELS) -> Release:
        """Return the newest release, or the newest with these labels."""
        return await self._send(calls.latest(model, labels))

    async def promoted(self, model: str) -> Release:
        return await self._send(calls.promoted(model))

    async def promote(self, model: str, job_id: str | None = None, *, force: bool = False) -> Release:
        """Promote a job's release, or the latest; with `force` even one that its gate does not bless."""
        return await self._send(calls.promote(model, job_id, force=force))

    async def roll_back(self, model: str) -> Release:
        return await self._send(calls.roll_back(model))

    async def ready(self) -> Readiness:
        return await self._send(calls.ready())

    async def events(self, job_id: str) -> AsyncIterator[JobView]:
        """Yield the job after every change until it has ended; reconnect once if the connection breaks."""
        reader, call = EventReader(), calls.get(job_id)
        for last_try in (False, True):
            headers = {**calls.headers_of(call, self._api_key), **reader.headers}
            try:
                async with self._http.stream("GET", f"{call.path}/events", headers=headers) as answer:
                    if answer.is_error:
                        await answer.aread()
                        calls.refuse_problems(answer, self._url)
                    async for line in answer.aiter_lines():
                        if job := reader.take(line):
                            yield job
            except httpx.HTTPError as error:
                if last_try:
                    raise calls.unreachable(self._url, error) from error
            if reader.ended:
                return
        raise calls.cut_off(self._url, job_id)

    async def _send(self, call: Call[Result]) -> Result:
        headers = calls.headers_of(call, self._api_key)
        try:
            answer = await self._http.request(
                call.method, call.path, content=call.body, params=dict(call.query), headers=headers
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise calls.unreachable(self._url, error) from error
        return calls.result_of(call, answer, self._url)
