"""A TCP proxy on the loopback that can delay, cut, reset and throttle what passes through it."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_CHUNK = 64 << 10
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of zero seconds: close sends RST


@dataclass
class Proxy:
    """Forwards one port to another until told otherwise; its methods may be called from any thread."""

    port: int
    target: int
    delay_s: float = 0.0  # for every chunk
    bytes_per_s: float | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _whole: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def cut(self) -> None:
        """Let nothing pass: connections hang, new ones too, and data arrives after `heal`."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def heal(self) -> None:
        self.delay_s, self.bytes_per_s = 0.0, None
        self._loop.call_soon_threadsafe(self._whole.set)

    def reset(self) -> None:
        """Reset every open connection; new ones are accepted."""
        self._loop.call_soon_threadsafe(self._reset)

    def _reset(self) -> None:
        for writer in self._writers:
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE
                )
            writer.transport.abort()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            to_client.transport.abort()
            return
        both = {to_client, to_server}
        self._writers |= both
        pumps = [self._pump(client, to_server), self._pump(server, to_client)]
        await asyncio.gather(*pumps, return_exceptions=True)
        self._writers -= both
        for writer in both:
            writer.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(_CHUNK):
                await asyncio.sleep(self.delay_s + (len(chunk) / self.bytes_per_s if self.bytes_per_s else 0))
                await self._whole.wait()
                sink.write(chunk)
                await sink.drain()
        sink.close()

    async def _run(self, listener: socket.socket, ready: threading.Event) -> None:
        self._whole.set()
        async with await asyncio.start_server(self._serve, sock=listener):
            ready.set()
            await asyncio.Event().wait()


@contextmanager
def proxy_to(target: int) -> Iterator[Proxy]:
    """Run a proxy to a port of this machine until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    proxy, ready = Proxy(listener.getsockname()[1], target), threading.Event()
    tasks: list[asyncio.Task[None]] = []

    def run() -> None:
        asyncio.set_event_loop(proxy._loop)
        tasks.append(proxy._loop.create_task(proxy._run(listener, ready)))
        with contextlib.suppress(asyncio.CancelledError):
            proxy._loop.run_until_complete(tasks[0])
        for task in (left := asyncio.all_tasks(proxy._loop)):
            task.cancel()
        proxy._reset()
        proxy._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        proxy._loop.close()

    thread = threading.Thread(target=run, name="proxy", daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield proxy
    finally:
        proxy._loop.call_soon_threadsafe(tasks[0].cancel)
        thread.join(10)
