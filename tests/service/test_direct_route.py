"""Requests that the route of new exports reads itself, beside the same ones read by FastAPI."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Scope

from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from tests.service.requests import export_request

DIRECT, BY_FASTAPI = "application/json", "application/json; charset=utf-8"
PER_JOB = {"id", "created_at", "updated_at"}


@pytest.fixture
def guarded(backend: Backend, tmp_path: Path) -> Iterator[TestClient]:
    keys = tmp_path / "keys.json"
    scopes = ("read", "submit")
    listed = [{"name": each, "secret": f"secret-of-the-{each}-key", "scopes": [each]} for each in scopes]
    keys.write_text(json.dumps({"keys": listed}))
    with TestClient(create_app(ServiceSettings(api_keys_file=keys, file_roots=("/",)), backend)) as client:
        yield client


def post(client: TestClient, body: bytes, media_type: str, key: str = "submit") -> tuple[int, object]:
    headers = {"Content-Type": media_type, "Authorization": f"Bearer secret-of-the-{key}-key"}
    answer = client.post("/exports", content=body, headers=headers)
    told = answer.json()
    return answer.status_code, {name: value for name, value in told.items() if name not in PER_JOB}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe{}",
        b"[" * 100_000,
        *(
            json.dumps(export_request(**changes)).encode()
            for changes in (
                {},
                {"ranks": "2"},
                {"ranks": 2.0},
                {"ranks": 99},
                {"rank": 2},
                {"force": "true"},
                {"labels": {"a": "b"}, "model": "m", "priority": "high"},
                {"tables": {"dtype": "fp16"}, "target": ["avx2", "avx512"]},
                {"checkpoint_uri": None},
                {"callback_url": "http://127.0.0.1/"},
                {"output_uri": "nowhere://x"},
                {"max_batch_size": float("inf")},
            )
        ),
        json.dumps(export_request()).encode("utf-16"),
        json.dumps(export_request())[:-1].encode() + b', "ranks": 1, "ranks": 2}',
    ],
)
def test_a_request_is_answered_as_fastapi_would_answer_it(guarded: TestClient, body: bytes) -> None:
    assert post(guarded, body, DIRECT) == post(guarded, body, BY_FASTAPI)


@pytest.mark.parametrize("key", ["read", "no"])
def test_a_caller_who_may_not_submit_is_refused_whatever_the_body_says(guarded: TestClient, key: str) -> None:
    for body in (b'{"rank": 1}', json.dumps(export_request()).encode()):
        refused = post(guarded, body, DIRECT, key)
        assert refused == post(guarded, body, BY_FASTAPI, key)
        assert refused[0] == (403 if key == "read" else 401)


@pytest.mark.parametrize("media_type", [DIRECT, BY_FASTAPI])
def test_a_caller_who_leaves_before_the_body_has_come_is_no_error_of_ours(
    backend: Backend, media_type: str
) -> None:
    headers = [(b"host", b"127.0.0.1"), (b"content-type", media_type.encode())]
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/exports",
        "headers": headers,
        "query_string": b"",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    sent: list[Message] = []

    async def leave() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def post() -> None:
        app = create_app(ServiceSettings(), backend)
        async with app.router.lifespan_context(app):
            await app(scope, leave, send)

    asyncio.run(post())
    assert 400 <= sent[0]["status"] < 500  # nobody reads it, but logs and metrics count errors of ours
