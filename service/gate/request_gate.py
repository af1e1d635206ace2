"""The gate that every request passes: before its body is read, its sender is authenticated by its headers."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exporter.errors import ExportError
from service.access.callers import Caller
from service.access.guard import bearer_of, caller_of, peer_of
from service.access.rate_limit import network_of
from service.errors import (
    DrawError,
    InvalidRequest,
    RequestTooLarge,
    RequestTooSlow,
    for_reader,
    problem,
)
from service.gate.budget import BodyBudget
from service.gate.same_site import SAFE, require_same_site

_STRANGERS_SHARE = 8  # of the budget, as a divisor: strangers can fill their own part only


@dataclass(frozen=True)
class PublicBody:
    """A route whose body is read without a key: to sign in, or because the body is signed."""

    max_bytes: int
    is_signed: bool = False


class RequestGate:
    """ASGI middleware that reads the bodies of known callers, and passes each on in one piece.

    A request without a valid key is passed on without its body, for its route to answer as it answers
    strangers. So is one that only reads, since no route takes a body with it: a stream of events would keep
    its part of the budget for hours. A body that breaks off is passed to no route.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_bytes: int,
        max_seconds: float,
        max_bodies_bytes: int,
        public: Mapping[str, PublicBody],
        draw: DrawError,
    ) -> None:
        """Pass bodies of up to `max_bytes` that arrive within `max_seconds` to `app`.

        The bodies of all requests in progress take up to `max_bodies_bytes`. The routes at the paths
        `public` need no key. What is refused is drawn for browsers by `draw`.
        """
        self._app = app
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._budget = BodyBudget(max_bodies_bytes)
        self._strangers_budget = BodyBudget(max_bodies_bytes // _STRANGERS_SHARE)
        self._public = public
        self._draw = draw

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request and read its body; then pass it on, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with ExitStack() as held:  # memory of the budget, until the request is answered
            connection = HTTPConnection(scope)
            try:
                receive_body = await self._check(connection, receive, held)
            except ExportError as refusal:
                answer = for_reader(connection, problem(refusal), self._draw)
                await answer(scope, receive, _closing(send))
            except ClientDisconnect:
                return  # a part of a request is none, and nobody waits for an answer
            else:
                if receive_body is None:
                    await self._app(scope, _replay(b"", receive), _closing(send))
                else:
                    await self._app(scope, receive_body, send)

    async def _check(self, connection: HTTPConnection, receive: Receive, held: ExitStack) -> Receive | None:
        """Return a `receive` that gives the whole body, or None if the body is not to be read."""
        path = connection.scope["path"].removeprefix(connection.scope.get("root_path", ""))
        public = self._public.get(path)
        if not (public and public.is_signed) and bearer_of(connection) is None:
            require_same_site(connection)
        announced = connection.headers.get("content-length")
        if announced in (None, "0") and "transfer-encoding" not in connection.headers:
            return receive
        if connection.scope["method"] in SAFE:
            return None
        limit, budget = self._max_bytes, self._budget
        if public is not None:
            limit, budget = min(public.max_bytes, limit), self._strangers_budget
            sender = network_of(peer_of(connection))
        elif caller := await _find_caller(connection):
            sender = caller.name
        else:
            return None
        if announced is not None and int(announced) > limit:
            raise _too_large(limit)
        take = held.enter_context(budget.account(sender))
        try:
            async with asyncio.timeout(self._max_seconds):
                body = await _read(receive, limit, take)
        except TimeoutError:
            raise RequestTooSlow(
                f"the request's body did not arrive within {self._max_seconds:g} s"
            ) from None
        if announced is not None and len(body) != int(announced):
            raise InvalidRequest(f"the body has {len(body)} bytes, and Content-Length says {announced}")
        return _replay(body, receive)


async def _find_caller(connection: HTTPConnection) -> Caller | None:
    """Return the caller if the key is valid; the route answers a wrong one with the error found here."""
    try:
        return await caller_of(connection)
    except ExportError:
        return None


async def _read(receive: Receive, limit: int, take: Callable[[int], None]) -> bytes:
    """Return the whole body; what has been read of one that ends early is freed at once."""
    with BytesIO() as body:  # gives its bytes without a copy
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            part = message.get("body", b"")
            if body.tell() + len(part) > limit:
                raise _too_large(limit)
            take(len(part))
            body.write(part)
            more = message.get("more_body", False)
        return body.getvalue()


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"the request's body is larger than {limit} bytes")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body at once, and then what the server reports."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body() -> Message:
        return messages.pop() if messages else await receive()

    return receive_body


def _closing(send: Send) -> Send:
    """Return a `send` that closes the connection after the answer: the rest of the request is not read."""

    async def send_and_close(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["Connection"] = "close"
        await send(message)

    return send_and_close
