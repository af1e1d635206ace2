"""Ranks, the processes of one attempt: they share out the towers, and rank 0 gathers the results."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import torch.distributed as dist

T = TypeVar("T")

_SCHEME = "tcp"


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among `size` ranks, which work alone on their towers and communicate once, in `gather`."""

    rank: int = 0
    size: int = 1
    # URI where the ranks gather: file:// of a file that does not exist yet, or tcp:// of the store of several
    # hosts; None: as torchrun has set it in the environment
    rendezvous: str | None = None
    time_limit: timedelta = timedelta(hours=6)  # a rank waits at most this long for the slowest
    # Pipes of the ranks after the first, where one process has forked all: the first reads from each of them,
    # and another writes to its own. They take a hundredth of a second; a process group takes more to set up.
    pipes: Sequence[Connection] = ()

    def share_out(self, items: tuple[T, ...]) -> tuple[T, ...]:
        """Return the items that this rank works on."""
        return items[self.rank :: self.size]

    def gather(self, value: T) -> list[T] | None:
        """Send `value` to rank 0; return every rank's value there, in rank order, and None on other ranks."""
        if self.size == 1:
            return [value]
        if self.pipes:
            return self._gather_by_pipes(value)
        values: list[T] | None = [value] * self.size if self.rank == 0 else None
        # Opened only now: the group's threads would not survive the fork in which each tower is exported.
        store = _open_store(self.rendezvous, self.size, self.time_limit) if self.rendezvous else None
        dist.init_process_group(
            "gloo",
            store=store,
            rank=self.rank,
            world_size=self.size,
            timeout=self.time_limit,
        )
        try:
            dist.gather_object(value, values, dst=0)
        finally:
            dist.destroy_process_group()
        return values

    def _gather_by_pipes(self, value: T) -> list[T] | None:
        if self.rank:
            self.pipes[0].send(value)
            return None
        deadline = time.monotonic() + self.time_limit.total_seconds()
        for each in self.pipes:
            if not each.poll(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"a rank has not ended within {self.time_limit}")
        return [value, *(each.recv() for each in self.pipes)]


def _open_store(rendezvous: str, ranks: int, time_limit: timedelta) -> dist.Store:
    """Open the file by which ranks of one host exchange values, or the store of several hosts."""
    place = urlsplit(rendezvous)
    if place.scheme == "file":  # torch's own parser of such a URI would not decode %20
        return dist.FileStore(unquote(place.path), ranks)
    assert place.scheme == _SCHEME and place.hostname and place.port, rendezvous
    store = dist.TCPStore(place.hostname, place.port, is_master=False, timeout=time_limit)
    return dist.PrefixStore("ranks", store)
