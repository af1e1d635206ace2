"""Which workers are alive: each announces itself again and again."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

from exporter.spec import Device, Frozen
from jobs.ids import JobId


class Gpu(Frozen):
    """One GPU of a worker's machine, as it was at the last beat."""

    index: int
    name: str
    memory_total: int  # bytes
    memory_used: int  # bytes, by whomever
    busy: float | None  # of late, 0 to 1; None where that is not known


class WorkerNotice(Frozen):
    """What a worker says of itself."""

    id: str
    host: str
    pid: int
    device: Device
    versions: Mapping[str, str]
    started_at: datetime
    jobs: tuple[JobId, ...] = ()  # being worked on
    gpus: tuple[Gpu, ...] = ()  # of its machine


class Roster(Protocol):
    """The workers that announced themselves of late."""

    def announce(self, notice: WorkerNotice, lifetime: timedelta) -> None: ...

    def withdraw(self, worker: str) -> None: ...

    def alive(self) -> tuple[WorkerNotice, ...]: ...

    def may_sweep(self, worker: str, interval: timedelta) -> bool:
        """True for one worker per interval: sweeping is harmless, but once is enough."""
        ...


class MemoryRoster:
    """The roster in this process's memory, for tests; notices do not expire."""

    def __init__(self) -> None:
        """Begin empty."""
        self._notices: dict[str, WorkerNotice] = {}

    def announce(self, notice: WorkerNotice, lifetime: timedelta) -> None:
        self._notices[notice.id] = notice

    def withdraw(self, worker: str) -> None:
        self._notices.pop(worker, None)

    def alive(self) -> tuple[WorkerNotice, ...]:
        return tuple(self._notices.values())

    def may_sweep(self, worker: str, interval: timedelta) -> bool:
        return True
