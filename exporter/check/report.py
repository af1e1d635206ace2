"""What the lab found out about a model: one finding per case, of every tower. No torch."""

from enum import StrEnum

from exporter.manifest import TraceTime
from exporter.outcome import Failure
from exporter.spec import Frozen, TowerName


class Subject(StrEnum):
    """What a finding is about."""

    PLAN = "plan"  # the program's sizes are exactly the planned dims, with their bounds
    NODES = "nodes"  # every node of the program keeps what tracing promised
    AGREES = "agrees"  # package and eager give the same numbers
    STEADY = "steady"  # two runs of the package on the same inputs do
    REFUSES = "refuses"  # the package rejects inputs that contradict each other


class Finding(Frozen):
    """One case, tried."""

    subject: Subject
    case: str
    passed: bool
    sizes: dict[str, int] = {}  # dynamic dim -> size
    of_allowed: float | None = None  # the largest difference, as a fraction of the allowed one
    detail: str = ""


class TowerCheck(Frozen):
    """A tower: what was found, or why nothing could be."""

    tower: TowerName
    findings: tuple[Finding, ...] = ()
    trace: TraceTime | None = None
    failure: Failure | None = None
    smallest: str = ""  # what the search for the smallest failing graph came to, if it was asked for

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.passed)

    @property
    def passed(self) -> bool:
        return self.failure is None and not self.failed


class CheckReport(Frozen):
    """All towers, and the seed by which the same sizes are drawn again."""

    passed: bool
    seed: int
    towers: tuple[TowerCheck, ...]
