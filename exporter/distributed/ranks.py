"""The processes of one attempt: who is who, and how results reach rank 0."""

from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeVar

import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among `size` ranks; a context manager around the process group.

    Ranks work alone on their towers and meet once, in `gather`.
    """

    rank: int = 0
    size: int = 1
    time_limit: timedelta = timedelta(hours=6)  # a rank waits at most this long for the slowest

    def __enter__(self) -> Self:
        if self.size > 1:
            dist.init_process_group("gloo", timeout=self.time_limit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.size > 1:
            dist.destroy_process_group()

    def share_out(self, items: tuple[T, ...]) -> tuple[T, ...]:
        """The items that are this rank's to work on."""
        return items[self.rank :: self.size]

    def gather(self, value: T) -> list[T] | None:
        """Every rank's value, in rank order, on rank 0; None elsewhere."""
        if self.size == 1:
            return [value]
        values: list[T] | None = [value] * self.size if self.rank == 0 else None
        dist.gather_object(value, values, dst=0)
        return values
