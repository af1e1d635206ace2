"""Answers as they arrive on a real connection."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI
from starlette.responses import StreamingResponse

from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from tests.service.conftest import serving
from tests.service.gate.sockets import connected

ASK = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def test_the_head_of_an_answer_comes_with_its_body(backend: Backend) -> None:
    with serving(create_app(ServiceSettings(), backend)) as url, connected(url) as connection:
        for _ in range(20):
            connection.sendall(ASK % b"/healthz")
            assert connection.recv(1 << 16).endswith(b'{"status":"ok"}')


def test_a_part_of_a_stream_comes_before_the_next_is_made() -> None:
    app, received = FastAPI(), asyncio.Event()

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            await asyncio.wait_for(received.wait(), 10)
            yield b"x" * (1 << 20)

        return StreamingResponse(parts())

    @app.get("/received")
    async def confirm() -> None:
        received.set()

    with serving(app) as url, connected(url) as connection, connected(url) as other:
        connection.sendall(ASK % b"/stream")
        answer = b""
        while b"first" not in answer:
            answer += connection.recv(1 << 16)
        other.sendall(ASK % b"/received")
        while not answer.endswith(b"0\r\n\r\n"):
            answer += connection.recv(1 << 16)
        assert answer.count(b"x") == 1 << 20
