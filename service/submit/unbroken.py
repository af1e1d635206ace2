"""Work that goes on when the request that began it is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class Unbroken:
    """Runs work to its end, also if the request that began it is cancelled."""

    def __init__(self) -> None:
        """Start without any."""
        self._running: set[asyncio.Task[object]] = set()

    async def run(self, work: Coroutine[None, None, T]) -> T:
        """Wait for the work; if that is cancelled, the work goes on."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def join(self) -> None:
        """Wait for all work that has begun."""
        await asyncio.gather(*self._running, return_exceptions=True)
