"""Tallies: what the workers have counted so far, such as attempts, seconds of stages, and failures."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from exporter.errors import PackageCrashed, PackageUnsteady, PromiseBroken, VerificationFailed
from exporter.spec import Device, Frozen, Mode, TowerName, device_of
from exporter.stages import Stage
from jobs.model import Job
from jobs.verdicts import ReleaseVerdict

# Upper bounds of the histogram buckets of stages and towers, in seconds.
BUCKETS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)

_GATE_FAILURES = frozenset(
    error.code for error in (VerificationFailed, PromiseBroken, PackageUnsteady, PackageCrashed)
)


class Tally(Frozen):
    """The name and labels of one count."""

    name: str  # attempts, gate_failures, releases; stage_ or tower_ with bucket, count or sum
    ending: str = ""  # the job's state after the attempt; in releases the verdict
    tower: TowerName | None = None
    stage: Stage | None = None
    mode: Mode | None = None
    device: Device | None = None
    cold: bool | None = None  # in tower_…: whether the code was compiled for this export
    up_to: int | None = None  # in …bucket: upper bound in seconds


class Tallies(Protocol):
    """Counts that only grow, shared by all programs."""

    def add(self, amounts: Mapping[Tally, float]) -> None: ...

    def read(self) -> Mapping[Tally, float]: ...

    def read_malformed(self) -> Mapping[str, int]:
        """Return how much malformed data in the store was passed over, by kind."""
        ...


class MemoryTallies:
    """Counts in a dict, for tests."""

    def __init__(self) -> None:
        """Start without counts."""
        self._amounts: dict[Tally, float] = {}

    def add(self, amounts: Mapping[Tally, float]) -> None:
        for tally, amount in amounts.items():
            self._amounts[tally] = self._amounts.get(tally, 0.0) + amount

    def read(self) -> Mapping[Tally, float]:
        return dict(self._amounts)

    def read_malformed(self) -> Mapping[str, int]:
        return {}


def count_attempt(job: Job) -> dict[Tally, float]:
    """Return what an attempt that has just ended adds to the counts."""
    amounts: dict[Tally, float] = {}
    for tally, amount in _list_tallies(job):
        amounts[tally] = amounts.get(tally, 0.0) + amount
    return amounts


def _list_tallies(job: Job) -> Iterator[tuple[Tally, float]]:
    yield Tally(name="attempts", ending=job.state), 1
    for verdict in job.verdicts:
        if verdict.target in (None, job.current_target):
            yield Tally(name="releases", ending=_describe_verdict(verdict)), 1
    for tower in job.current_towers:
        if tower.failure is not None and tower.failure.code in _GATE_FAILURES:
            yield Tally(name="gate_failures", tower=tower.name), 1
        device = device_of(job.current_target)  # the spec's device is that of its first target
        kind = Tally(name="", tower=tower.name, mode=job.spec.mode, device=device)
        for stage, seconds in tower.stage_seconds.items():
            yield from _observe_seconds("stage", kind.model_copy(update={"stage": stage}), seconds)
        if tower.code is not None:
            all_stages = sum(tower.stage_seconds.values())
            cold = tower.code == "cold"
            yield from _observe_seconds("tower", kind.model_copy(update={"cold": cold}), all_stages)


def _describe_verdict(verdict: ReleaseVerdict) -> str:
    if verdict.failure:
        return "not_judged"
    return "blessed" if verdict.blessed else "not_blessed"


def _observe_seconds(name: str, kind: Tally, seconds: float) -> Iterator[tuple[Tally, float]]:
    """Yield the counts of one observation of a histogram."""
    yield kind.model_copy(update={"name": f"{name}_count"}), 1
    yield kind.model_copy(update={"name": f"{name}_sum"}), seconds
    for up_to in (bound for bound in BUCKETS if seconds <= bound):
        yield kind.model_copy(update={"name": f"{name}_bucket", "up_to": up_to}), 1
