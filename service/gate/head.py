"""HEAD wherever there is GET: the same answer without its body."""

from anyio import CancelScope
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Lets the application answer HEAD as it answers GET, and stops it once the headers are known."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap the application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        with CancelScope() as answering:

            async def send_headers(message: Message) -> None:
                if message["type"] != "http.response.start":
                    return
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                answering.cancel()  # a file, or a stream of events without end, would follow

            await self._app({**scope, "method": "GET"}, receive, send_headers)
