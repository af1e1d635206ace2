"""Many clients that poll at once on kept connections, each asking about a job every few seconds."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

_EVERY_S = 4.0  # less than the server keeps a connection on which nothing is said


@dataclass
class Polls:
    """The times that the answers took, in seconds, and the number of answers of each status."""

    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    def add(self, more: "Polls") -> None:
        self.seconds += more.seconds
        for status, count in more.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + count

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def poll(port: int, paths: Sequence[str], *, pollers: int, seconds: float) -> Polls:
    """Let many clients poll for a while, each at its own moment and with the entity tag that it has."""
    polls = Polls()
    asyncio.run(_all(port, paths, polls, pollers, seconds))
    return polls


async def _all(port: int, paths: Sequence[str], polls: Polls, pollers: int, seconds: float) -> None:
    draw = random.Random(0)
    end = time.monotonic() + seconds
    await asyncio.gather(
        *(_one(port, draw.choice(paths), polls, draw.uniform(0, _EVERY_S), end) for _ in range(pollers))
    )


async def _one(port: int, path: str, polls: Polls, wait_s: float, end: float) -> None:
    await asyncio.sleep(wait_s)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    tag = ""
    try:
        while time.monotonic() < end:
            begun = time.perf_counter()
            known = f"If-None-Match: {tag}\r\n" if tag else ""
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{known}\r\n".encode())
            status, tag = await _answer(reader)
            polls.seconds.append(time.perf_counter() - begun)
            polls.statuses[status] = polls.statuses.get(status, 0) + 1
            await asyncio.sleep(_EVERY_S)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
    await reader.readexactly(int(headers.get("content-length", "0")))
    return int(head[0].split()[1]), headers.get("etag", "")
