"""Sending the head of an answer and its body together: every send wakes the receiver, and takes its time."""

import asyncio
from typing import Any

_MOST_WAITING = 1 << 14  # bytes; more are sent at once, so that a stream is slowed down as its reader needs


class JoinedWrites(asyncio.Transport):
    """A transport that sends what is written in one step of the event loop with one call of the system."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Send by `transport`."""
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the data by the end of this step of the event loop, or with the next `flush`."""
        if not data:
            return
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(bytes(data))
        self._size += len(data)
        if self._size > _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Send what was written."""
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            self._transport.write(data)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that were written and are not sent."""
        return self._size + self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close the connection once all is sent."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._waiting.clear()
        self._size = 0
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the connection is closed or about to be."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Take no more data from the connection."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take data from the connection again."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the transport knows of the connection."""
        return self._transport.get_extra_info(name, default)
