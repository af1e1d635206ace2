"""A limit on the size and duration of request bodies, which would otherwise fill the memory."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import RequestTooLarge, RequestTooSlow, problem


class RequestLimit:
    """ASGI middleware that answers 413 to a body that is too large, announced or not, and 408 if too slow."""

    def __init__(self, app: ASGIApp, max_bytes: int, max_seconds: float) -> None:
        """Pass bodies of up to `max_bytes` that arrive within `max_seconds` to `app`, each in one piece."""
        self._app = app
        self._max_seconds = max_seconds
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, and pass the request on if it is small enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._max_seconds):
                body = None if self._announces_too_much(scope) else await self._read(receive)
        except TimeoutError:
            await self._refuse_slow()(scope, receive, send)
            return
        if body is None:
            await self._refuse_large()(scope, receive, send)
            return
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay_body() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, replay_body, send)

    def _announces_too_much(self, scope: Scope) -> bool:
        length = dict(scope["headers"]).get(b"content-length", b"0")
        return length.isdigit() and int(length) > self._max_bytes

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the whole body, or None as soon as it is too large."""
        body = bytearray()
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._max_bytes:
                return None
        return bytes(body)

    def _refuse_slow(self) -> ASGIApp:
        error = RequestTooSlow(f"the request's body did not arrive within {self._max_seconds:g} s")
        refusal = problem(error)
        refusal.headers["Connection"] = "close"  # the rest of the body is not read
        return refusal

    def _refuse_large(self) -> ASGIApp:
        error = RequestTooLarge(
            f"the request's body is larger than {self._max_bytes} bytes",
            hint="give the pipeline config by URI",
        )
        return problem(error)
