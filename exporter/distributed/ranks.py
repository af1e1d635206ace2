"""The processes of one attempt: who is who, and how results reach rank 0."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import torch.distributed as dist

T = TypeVar("T")

_SCHEME = "tcp"


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among `size` ranks. They work alone on their towers and meet once, in `gather`."""

    rank: int = 0
    size: int = 1
    # file:// of a file that does not exist yet, or tcp:// where several hosts have met; default: what
    # torchrun has set in the environment
    meeting: str | None = None
    time_limit: timedelta = timedelta(hours=6)  # a rank waits at most this long for the slowest

    def share_out(self, items: tuple[T, ...]) -> tuple[T, ...]:
        """The items that are this rank's to work on."""
        return items[self.rank :: self.size]

    def gather(self, value: T) -> list[T] | None:
        """Every rank's value, in rank order, on rank 0; None elsewhere."""
        if self.size == 1:
            return [value]
        values: list[T] | None = [value] * self.size if self.rank == 0 else None
        # Not before: the group's threads would not survive the fork that each tower is exported in.
        store = _open_store(self.meeting, self.size, self.time_limit) if self.meeting else None
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


def _open_store(meeting: str, ranks: int, time_limit: timedelta) -> dist.Store:
    """The file where the ranks of one host meet, or the store that one of several hosts keeps."""
    place = urlsplit(meeting)
    if place.scheme == "file":  # by hand: torch's own reading of such a URI leaves %20 as it is
        return dist.FileStore(unquote(place.path), ranks)
    assert place.scheme == _SCHEME and place.hostname and place.port, meeting
    store = dist.TCPStore(place.hostname, place.port, is_master=False, timeout=time_limit)
    return dist.PrefixStore("ranks", store)
