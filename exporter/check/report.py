"""The report of `slipway check`: one finding per check and case, of every tower. Imports no torch."""

from exporter.manifest import TraceTime
from exporter.outcome import Failure
from exporter.spec import Frozen, TowerName


class Finding(Frozen):
    """The result of one check in one case."""

    subject: str  # the name of the check, or "plan"
    case: str
    passed: bool
    sizes: dict[str, int] = {}  # dynamic dim -> size
    of_allowed: float | None = None  # the largest difference, as a fraction of the allowed one
    detail: str = ""


class TowerCheck(Frozen):
    """The findings of one tower, or the failure that prevented them."""

    tower: TowerName
    findings: tuple[Finding, ...] = ()
    trace: TraceTime | None = None
    failure: Failure | None = None
    smallest: str = ""  # the result of the search for the smallest failing graph, if it was asked for

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
