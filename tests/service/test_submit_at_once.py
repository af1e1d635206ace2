"""Exports that the API accepts on its event loop: the same answers as from a thread, and no job by halves."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from anyio.to_thread import current_default_thread_limiter

from jobs.celery_queue import message_lists
from jobs.ids import JobId
from jobs.model import JobState
from jobs.stores.redis_keys import JOB_KEY
from jobs.stores.redis_store import RedisJobStore, connect
from launcher.redis_server import RedisServer, running_redis
from service.app import create_app
from service.settings import ServiceSettings
from tests.service.requests import FIXTURES, export_request

_LONGEST_S = 10.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    client = connect(server.url)
    yield client
    client.close()


@asynccontextmanager
async def running_api(url: str, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The application, which has planned the recorded config and knows its Redis's time already."""
    app = create_app(ServiceSettings(redis_url=url, **settings))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as api:
            await warm_up(api)
            yield api


async def warm_up(api: httpx.AsyncClient) -> None:
    answer = await api.post("/exports", json=export_request(force=True))
    assert answer.status_code == 202, answer.text


@asynccontextmanager
async def all_threads_busy() -> AsyncIterator[None]:
    """All threads of the pool are taken as long as the block lasts."""
    limiter, others = current_default_thread_limiter(), object()
    limiter.total_tokens = 1
    await limiter.acquire_on_behalf_of(others)
    yield
    limiter.release_on_behalf_of(others)


async def soon(answer: Awaitable[httpx.Response]) -> httpx.Response:
    return await asyncio.wait_for(answer, _LONGEST_S)


async def needs_thread(answer: Awaitable[httpx.Response]) -> bool:
    """Return whether there is no answer as long as all threads are busy."""
    waiting = asyncio.ensure_future(answer)
    async with all_threads_busy():
        done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert (await soon(waiting)).status_code in (200, 202)
    return not done


def stored(client: redis.Redis, job_id: str) -> tuple[Any, Any]:
    """Return the job's hash, and its message, without what differs between two equal requests."""
    found = {str(name): str(text) for name, text in client.hgetall(JOB_KEY + job_id).items()}
    record = json.loads(found["record"])
    for name in ("id", "created_at", "updated_at"):
        assert record.pop(name)
    messages = [json.loads(str(text)) for key in message_lists() for text in client.lrange(key, 0, -1)]
    (message,) = [each for each in messages if each["headers"]["id"] == job_id]
    return {**found, "record": record}, message["headers"].keys()


def test_a_job_is_accepted_while_all_threads_are_busy_and_stored_as_from_a_thread(
    server: RedisServer, client: redis.Redis
) -> None:
    async def post() -> tuple[str, str]:
        async with running_api(server.url) as api:
            async with all_threads_busy():
                at_once = await soon(api.post("/exports", json=export_request()))
            with_key = {"Idempotency-Key": "k"}
            in_thread = await api.post("/exports", json=export_request(), headers=with_key)
            for answer in (at_once, in_thread):
                assert answer.status_code == 202, answer.text
                assert answer.headers["Location"] == f"/exports/{answer.json()['id']}"
            assert at_once.headers.keys() == in_thread.headers.keys()
            return at_once.json()["id"], in_thread.json()["id"]

    first, second = asyncio.run(post())
    assert stored(client, first) == stored(client, second)


@pytest.mark.parametrize(
    ("changes", "headers"),
    [
        ({}, {"Idempotency-Key": "k"}),
        ({"config": None, "config_uri": str(FIXTURES / "hstu_match" / "pipeline.config")}, {}),
        ({"max_batch_size": 77}, {}),  # not planned yet
        ({"checkpoint_uri": "/proc/self"}, {}),  # on no disk of this machine
    ],
)
def test_what_may_have_to_wait_waits_in_a_thread(
    server: RedisServer, changes: dict[str, Any], headers: dict[str, str]
) -> None:
    async def post() -> None:
        async with running_api(server.url) as api:
            assert await needs_thread(api.post("/exports", json=export_request(**changes), headers=headers))

    asyncio.run(post())


def test_paths_that_have_to_be_judged_are_judged_in_a_thread(server: RedisServer) -> None:
    async def post() -> None:
        async with running_api(server.url, file_roots=("/",)) as api:
            assert await needs_thread(api.post("/exports", json=export_request()))

    asyncio.run(post())


def test_mistakes_are_answered_as_from_a_thread(server: RedisServer) -> None:
    async def post() -> None:
        async with running_api(server.url, max_config_bytes_per_owner=30_000) as api:
            for changes in (
                {"output_uri": "s3://user:password@bucket/"},
                {"callback_url": "https://example.com/"},
                {"passes": [{"name": "none"}]},
                {"config": str(export_request()["config"]) + "#" * 29_000},
            ):
                body = export_request(**changes)
                answers = [
                    await api.post("/exports", json=body, headers=headers)
                    for headers in ({}, {"Idempotency-Key": "k"})
                ]
                assert answers[0].status_code >= 400, changes
                assert answers[0].json() == answers[1].json()

    asyncio.run(post())


def test_the_artifact_of_an_earlier_job_is_found(
    server: RedisServer, client: redis.Redis, tmp_path: Path
) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text("{}")
    store = RedisJobStore(client)

    async def post() -> None:
        async with running_api(server.url) as api:
            first = (await api.post("/exports", json=export_request())).json()["id"]
            job = store.get(JobId(first))
            done = {"state": JobState.SUCCEEDED, "manifest_uri": str(manifest), "revision": 2}
            assert store.replace(job, job.model_copy(update=done))
            again = await api.post("/exports", json=export_request())
            assert (again.status_code, again.json()["id"]) == (200, first)
            forced = await api.post("/exports", json=export_request(force=True))
            assert (forced.status_code, forced.json()["id"] == first) == (202, False)
            manifest.unlink()
            made_again = await api.post("/exports", json=export_request())
            assert (made_again.status_code, made_again.json()["id"] == first) == (202, False)

    asyncio.run(post())


def test_a_caller_who_leaves_while_redis_answers_leaves_a_whole_job(
    server: RedisServer, client: redis.Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    store = RedisJobStore(client)

    async def post() -> JobId:
        async with running_api(server.url) as api:
            (before,) = store.page(limit=10).jobs
            client.client_pause(timeout=60_000, all=False)  # Redis answers no call that writes
            leaving = asyncio.ensure_future(api.post("/exports", json=export_request(model="left")))
            await asyncio.sleep(0.2)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            assert store.page(limit=10).jobs == (before,)
            client.client_unpause()
            answer = await soon(api.post("/exports", json=export_request(model="stayed")))
            assert answer.status_code == 202, answer.text
        (left,) = [job.id for job in store.page(limit=10).jobs if job.model == "left"]
        return left

    left = asyncio.run(post())
    assert stored(client, left)
    assert capfd.readouterr().err.count(f"action=submit subject={left}") == 1


def test_a_lost_redis_is_answered_as_from_a_thread(server: RedisServer) -> None:
    async def post() -> None:
        async with running_api(server.url) as api:
            server.program.stop()
            async with all_threads_busy():
                at_once = await soon(api.post("/exports", json=export_request()))
            in_thread = await api.post("/exports", json=export_request(), headers={"Idempotency-Key": "k"})
            assert (at_once.status_code, at_once.json()["code"]) == (503, "store_unavailable")
            assert at_once.json() == in_thread.json()
            assert at_once.headers["Retry-After"] == in_thread.headers["Retry-After"]

    asyncio.run(post())
