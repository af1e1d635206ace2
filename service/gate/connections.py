"""Connections that end when a request's head does not come: the number of connections is bounded."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_S = 10.0


class BoundedConnection(H11Protocol):
    """A connection on which every request's head must arrive in time, the first as well as later ones."""

    head_seconds = _HEAD_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, which may be the rest of a head or the begin of another."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._forget_deadline()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if not self._is_between_requests():
            self._forget_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self._end)

    def _end(self) -> None:
        if self._is_between_requests():
            self.transport.close()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
