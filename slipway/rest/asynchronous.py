"""The asynchronous client: the REST calls for programs that do other things while they wait."""

import asyncio
from collections.abc import AsyncIterator, Collection, Generator, Mapping
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx

from slipway.rest import calls
from slipway.rest.answers import (
    Comparison,
    JobList,
    JobLog,
    JobView,
    Manifest,
    ModelList,
    PlanView,
    Readiness,
    Release,
)
from slipway.rest.calls import NO_LABELS, POLL_S, Call
from slipway.rest.errors import SlipwayError
from slipway.rest.events import EventReader
from slipway.rest.hooks import AsyncHookMethods
from slipway.rest.names import JobState, Stage, TowerName
from slipway.rest.received import Digests, Download, Fetch, Received, Wanted
from slipway.rest.requests import Body, ExportRequest, PlanRequest
from slipway.rest.waiting import Wait

Result = TypeVar("Result")


class AsyncClient(AsyncHookMethods):
    """Calls one service: `async with AsyncClient(url) as slipway: …`.

    Every call raises RequestRefused if the service refuses it, and ServiceUnreachable if no Slipway service
    answers. An answer with a stage or state that this version does not know counts as none of Slipway's:
    upgrade the client before the service.
    """

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

    async def submit(self, request: ExportRequest | Body, *, key: str | None = None) -> JobView:
        """Post an export; calls with the same idempotency `key` start a single job."""
        return await self._send(calls.submit(request, key))

    async def plan(self, request: PlanRequest | Body) -> PlanView:
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

    async def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Return the job when it has ended, however it ended; a service that restarts is waited for.

        Raises:
            StillRunning: it has not ended after `timeout_s` seconds; None waits for as long as it takes.
            ServiceUnreachable: the service has not answered for a minute.
        """
        wait, job = Wait(timeout_s), await self.get(job_id)
        while wait.goes_on(job):
            await asyncio.sleep(POLL_S)
            try:
                job = await self.get_if_changed(job)
                wait.note_answer()
            except SlipwayError as error:
                wait.raise_unless_retryable(error)
        return job

    async def download(
        self,
        job_id: str,
        into: Path,
        *,
        towers: Collection[TowerName | str] = (),
        target: str | None = None,
        key: Path | None = None,
    ) -> Manifest:
        """Fetch what the job published into the new folder `into`, and check every file.

        The folder is there whole, or not at all. `towers` names those to fetch, by default all; `target` is
        one of a job with several. With a `key`, the file of a public key, the
        manifest must be signed by it.

        Raises:
            DownloadFailed: the folder exists or cannot be written, or a file is not the one in the manifest.
            SignatureRefused: `key` has not signed the manifest.
        """
        wanted = Wanted(towers=towers, target=target, key=key)
        with Download(into) as files:
            return await self._receive(files, files.fetch_all(job_id, wanted))

    async def verify(
        self,
        job_id: str,
        *,
        towers: Collection[TowerName | str] = (),
        target: str | None = None,
        key: Path | None = None,
    ) -> Manifest:
        """Read every file that the job published, and check it as `download` does; nothing is written.

        Raises:
            DownloadFailed: a file is not the one in the manifest.
            SignatureRefused: `key` has not signed the manifest.
        """
        files, wanted = Digests(), Wanted(towers=towers, target=target, key=key)
        return await self._receive(files, files.fetch_all(job_id, wanted))

    async def ready(self) -> Readiness:
        return await self._send(calls.ready())

    async def events(self, job_id: str) -> AsyncIterator[JobView]:
        """Yield the job after every change until it has ended; reconnect once if the connection breaks."""
        reader, call = EventReader(self._url), calls.get(job_id)
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

    async def _receive(self, files: Received, steps: Generator[Fetch, bool | None, Manifest]) -> Manifest:
        was_there: bool | None = None
        while True:
            try:
                fetch = steps.send(was_there)
            except StopIteration as end:
                manifest: Manifest = end.value
                return manifest
            was_there = await self._fetch(fetch, files)

    async def _fetch(self, fetch: Fetch, files: Received) -> bool:
        """Write a file as it comes, from the service or the store that it names; False if it is missing."""
        call, headers = fetch.call, calls.headers_of(fetch.call, self._api_key)
        try:
            async with self._http.stream(
                call.method, call.path, params=dict(call.query), headers=headers, follow_redirects=True
            ) as answer:
                if answer.is_error:
                    await answer.aread()
                    if fetch.may_be_missing and answer.status_code == HTTPStatus.NOT_FOUND:
                        return False
                    calls.refuse_problems(answer, self._url)
                with files.write(fetch.path) as file:
                    async for chunk in answer.aiter_bytes():
                        file.write(chunk)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise calls.unreachable(self._url, error) from error
        return True

    async def _send(self, call: Call[Result]) -> Result:
        headers = calls.headers_of(call, self._api_key)
        try:
            answer = await self._http.request(
                call.method, call.path, content=call.body, params=dict(call.query), headers=headers
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise calls.unreachable(self._url, error) from error
        return calls.result_of(call, answer, self._url)
