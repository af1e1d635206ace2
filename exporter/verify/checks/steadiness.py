"""Check of steadiness: all runs of the packages on the same inputs give the same numbers."""

from collections.abc import Sequence

from exporter.data.rows import NamedBatch
from exporter.errors import PackageUnsteady
from exporter.verify.cases import Cases
from exporter.verify.checks.check import Check, CheckResult, Trial
from exporter.verify.numerics import Difference, compare_runs
from exporter.verify.runner import Refused

_ALLOWED = 0.1  # of the tolerance: how far two runs may differ; on one CPU thread they do not at all


class Steadiness(Check):
    """The packages are run again, at least once; a difference between two runs cannot be rounding."""

    name = "steady"
    title = "the same again"
    error = PackageUnsteady
    repeats = 1

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        return cases.must_agree

    def select_for_gate(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return the smallest, a usual and the largest size."""
        return cases.typical

    def run(self, trial: Trial) -> CheckResult:
        """Compare the repeats of one case with its first run."""
        change = self._describe_change(trial)
        case = trial.batch.name
        error = PackageUnsteady(f"{self.runnable.title}: {case}: {change}", where=case) if change else None
        return CheckResult(passed=not change, sizes=trial.sizes, detail=change, error=error)

    def _describe_change(self, trial: Trial) -> str:
        """Return how far two runs are apart, in words; empty if they agree, or both are refused."""
        answer = trial.answer
        if isinstance(answer, Refused):  # another check's failure
            return ""
        difference = compare_runs(answer.outputs, {**answer.outputs, **answer.moved})
        change = describe_difference(difference, self.runnable.tolerance)
        where = "in one of two runs" if difference.problem else "between two runs"
        if change and answer.changed_inputs:
            return f"{change} {where}: a call changes its input {answer.changed_inputs[0]}"
        if change:
            return f"{change} {where} on the same inputs"
        difference = compare_runs(answer.outputs, {**answer.outputs, **answer.moved_by_threads})
        # Sums of other parts are rounded otherwise, as in the comparison with eager.
        change = describe_difference(difference, self.runnable.tolerance, share=1.0)
        return f"{change} between one thread and more on the same inputs" if change else ""


def describe_difference(difference: Difference, tolerance: float, *, share: float = _ALLOWED) -> str:
    """Return how far two runs are apart, in words; empty if it is less than that share of the tolerance."""
    if difference.within(tolerance * share):
        return ""
    if difference.problem:
        return f"{difference.output or 'outputs'}: {difference.problem}"
    return f"{difference.output} differs by {difference.largest:.3g} at scale {difference.scale:.3g}"
