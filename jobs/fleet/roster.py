"""Which workers are alive: each announces itself again and again."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from pydantic import ConfigDict

from exporter.spec import Device, Frozen, Target
from jobs.ids import JobId


class Gpu(Frozen):
    """One GPU of a worker's machine, as it was at the last beat."""

    index: int
    name: str
    memory_total: int  # bytes
    memory_used: int  # bytes, by whomever
    busy: float | None  # of late, 0 to 1; None where that is not known


class WorkerNotice(Frozen):
    """What a worker says of itself; what a newer one says besides is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    host: str
    pid: int
    device: Device
    targets: tuple[Target, ...] = ("cpu",)  # what it takes jobs for
    architecture: str = ""  # "x86_64 avx2 avx512", "sm_90"
    memory: int | None = None  # bytes: the GPU's, or what the worker's processes may use
    versions: Mapping[str, str]
    started_at: datetime
    jobs: tuple[JobId, ...] = ()  # being worked on
    gpus: tuple[Gpu, ...] = ()  # of its machine


def find_unserved(targets: Iterable[Target], alive: Iterable[WorkerNotice]) -> tuple[Target, ...]:
    """Those of the targets that no worker alive takes jobs for."""
    served = {target for worker in alive for target in worker.targets}
    return tuple(target for target in targets if target not in served)


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
