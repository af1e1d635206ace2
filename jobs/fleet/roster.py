"""The roster: workers announce themselves regularly, and expire when they stop doing so."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from pydantic import ConfigDict

from exporter.spec import Device, Frozen, Target
from exporter.torch_releases import TorchRelease
from jobs.ids import JobId
from jobs.route import Route, split_route


class Gpu(Frozen):
    """One GPU of a worker's machine, as it was at the last beat."""

    index: int
    name: str
    memory_total: int  # bytes
    memory_used: int  # bytes, by all programs
    busy: float | None  # recent utilization, 0 to 1; None if unknown


class WorkerNotice(Frozen):
    """A worker's announcement of itself; fields of newer workers are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    host: str
    pid: int
    device: Device
    targets: tuple[Target, ...] = ("cpu",)  # targets that it takes jobs for
    routes: tuple[Route, ...] = ()  # that it takes jobs from; older workers do not say, and see jobs.route
    architecture: str = ""  # "x86_64 avx2 avx512", "sm_90"
    memory: int | None = None  # bytes: the GPU's, or what the worker's processes may use
    versions: Mapping[str, str]
    started_at: datetime
    jobs: tuple[JobId, ...] = ()  # jobs that it is working on
    gpus: tuple[Gpu, ...] = ()  # GPUs of its machine

    @property
    def served(self) -> tuple[Route, ...]:
        """The routes that it takes jobs from; of an older worker those that name no release of torch."""
        return self.routes or self.targets


def find_unserved(routes: Iterable[Route], alive: Iterable[WorkerNotice]) -> tuple[Target, ...]:
    """Return the targets of those routes from which no worker alive takes jobs."""
    served = {route for worker in alive for route in worker.served}
    return tuple(split_route(route)[0] for route in routes if route not in served)


def find_releases(alive: Iterable[WorkerNotice]) -> frozenset[TorchRelease]:
    """Return the releases of torch that jobs may name and have a worker alive."""
    named = (split_route(route)[1] for worker in alive for route in worker.served)
    return frozenset(release for release in named if release)


class Roster(Protocol):
    """The workers that have announced themselves recently."""

    def announce(self, notice: WorkerNotice, lifetime: timedelta) -> None: ...

    def withdraw(self, worker: str) -> None: ...

    def alive(self) -> tuple[WorkerNotice, ...]: ...

    def may_sweep(self, worker: str, interval: timedelta) -> bool:
        """Return True to one worker per interval, because one sweep per interval is enough."""
        ...


ReadAlive = Callable[[], tuple[WorkerNotice, ...]]  # returns the workers alive


def list_releases(promised: Iterable[TorchRelease], read_alive: ReadAlive) -> frozenset[TorchRelease]:
    """Return the releases of torch that jobs may name: the promised ones, and those that workers have."""
    return find_releases(read_alive()).union(promised)


@dataclass(frozen=True)
class Fleet:
    """The workers alive as a caller sees them: all share them, but not all may know what each works on."""

    read: ReadAlive
    shows_jobs: bool

    def alive(self) -> tuple[WorkerNotice, ...]:
        alive = self.read()
        return alive if self.shows_jobs else tuple(each.model_copy(update={"jobs": ()}) for each in alive)


class MemoryRoster:
    """The roster in memory, for tests; notices do not expire."""

    def __init__(self) -> None:
        """Start without workers."""
        self._notices: dict[str, WorkerNotice] = {}

    def announce(self, notice: WorkerNotice, lifetime: timedelta) -> None:
        self._notices[notice.id] = notice

    def withdraw(self, worker: str) -> None:
        self._notices.pop(worker, None)

    def alive(self) -> tuple[WorkerNotice, ...]:
        return tuple(self._notices.values())

    def may_sweep(self, worker: str, interval: timedelta) -> bool:
        return True
