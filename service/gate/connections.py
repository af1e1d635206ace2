"""Connections of the API, bounded in number; those that bring no request or read no answer end early.

uvicorn itself takes any number of connections: its own bound only chooses the answer to requests on them.
"""

import asyncio
from heapq import nsmallest
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from service.gate.joined_writes import JoinedWrites

_HEAD_S = 10.0
_UNREAD_S = 30.0
_PART_ENDED = 0.1  # of the waiting connections, so that the oldest are not looked for at every new one
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)


class BoundedConnection(H11Protocol):
    """A connection on which every request's head must arrive in time, and every answer must be read.

    There are always fewer than uvicorn's `limit_concurrency`. A new one that would be too many ends those
    that have waited longest for a head; it is refused if all others have a request in progress.
    """

    head_seconds = _HEAD_S
    unread_seconds = _UNREAD_S  # for which nothing of an answer is read
    _unread: asyncio.TimerHandle | None = None  # looks again whether something was read
    deadline: asyncio.TimerHandle | None = None  # of the next head; None while a request is in progress
    _joined: JoinedWrites

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Begin to wait for the first head, if there is room for one more connection."""
        self._joined = JoinedWrites(transport, self.loop)
        super().connection_made(self._joined)
        full = self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency
        if full and not self._make_room():
            self.connections.discard(self)
            transport.write(_BUSY)
            transport.close()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, which may be the rest of a head or the begin of another."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Send the answer, and begin to wait for the next head."""
        self._joined.flush()
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read, as the server does."""
        super().pause_writing()
        self._wait_for_reading()

    def resume_writing(self) -> None:
        """Go on after the client has read."""
        self._stop_waiting_for_reading()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._forget_deadline()
        self._stop_waiting_for_reading()
        super().connection_lost(exc)

    def _make_room(self) -> bool:
        """End connections that wait for a head, the oldest first; return whether there were any."""
        others = (cast(BoundedConnection, each) for each in self.connections if each is not self)
        waiting = [(each.deadline.when(), id(each), each) for each in others if each.deadline]
        for _, _, each in nsmallest(1 + int(len(waiting) * _PART_ENDED), waiting):
            self.connections.discard(each)
            each.transport.abort()
        return bool(waiting)

    def _wait_for_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self.unread_seconds, self._end_if_unread, unread)

    def _end_if_unread(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._wait_for_reading()
        else:
            self.transport.abort()

    def _stop_waiting_for_reading(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch(self) -> None:
        if not self._is_between_requests():
            self._forget_deadline()
        elif self.deadline is None:
            self.deadline = self.loop.call_later(self.head_seconds, self._end)

    def _end(self) -> None:
        if self._is_between_requests():
            self.transport.close()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _forget_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
