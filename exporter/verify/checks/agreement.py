"""Check of agreement: the packages compute what eager computes, elementwise, within the tolerance."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.data.rows import NamedBatch
from exporter.manifest import CaseKind, CaseReport
from exporter.verify.cases import Cases
from exporter.verify.checks.check import Agreed, Check, CheckResult, Trial
from exporter.verify.numerics import compare, measure_scales
from exporter.verify.runnable_tower import RunnableTower
from exporter.verify.runner import Refused


class Agreement(Check):
    """Every output of the packages is compared with eager's, at every size.

    Integers must be equal, except for choices between ids that are as near as rounding can tell: these are
    computed again as the package has made them.
    """

    name = "agrees"
    title = "package against eager"

    def __init__(self, runnable: RunnableTower) -> None:
        super().__init__(runnable)
        self._usual_scales: Mapping[str, float] = {}

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        return cases.must_agree

    def prepare(self, cases: Cases, largest: Trial | None) -> None:
        """Measure each output's scale in the largest ordinary batch, as a reference for small batches."""
        if largest is not None:
            self._usual_scales = measure_scales(largest.expected)

    def run(self, trial: Trial) -> CheckResult:
        """Compare all outputs in one case; inputs that are refused fail."""
        batch, outputs = trial.batch, trial.outputs
        if isinstance(outputs, Refused):
            return self._result(
                CaseReport(
                    name=batch.name,
                    kind=CaseKind.AGREES,
                    sizes=trial.sizes,
                    passed=False,
                    detail=str(outputs),
                )
            )
        expected = self._settle_ties(trial, outputs)
        difference = compare(expected, outputs, usual=self._usual_scales)
        is_finite = not difference.problem
        if passed := difference.within(self.runnable.tolerance):
            trial.agreed = Agreed(expected, self._usual_scales)
        return self._result(
            CaseReport(
                name=batch.name,
                kind=CaseKind.AGREES,
                sizes=trial.sizes,
                passed=passed,
                largest_difference=difference.largest if is_finite else None,
                scale=difference.scale if is_finite else None,
                output=difference.output,
                detail=difference.problem or batch.note,
            )
        )

    def _settle_ties(self, trial: Trial, outputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return eager's outputs with ties decided as the packages did, if their choices are any at all."""
        try:
            return self.runnable.settle_ties(trial.batch.inputs, trial.expected, outputs)
        except (
            LookupError,
            RuntimeError,
            ValueError,
        ) as error:  # ids that no table has, an output that is missing
            if as_out_of_memory(error):
                raise
            return trial.expected

    def _result(self, report: CaseReport) -> CheckResult:
        allowed = self.runnable.tolerance * (report.scale or 0.0)
        difference, detail = report.largest_difference, report.detail
        if not report.passed and difference is not None:
            at = f"{report.output} differs by {difference:.3g} at scale {report.scale:.3g}"
            detail = f"{at}; {detail}" if detail else at
        return CheckResult(
            passed=report.passed,
            sizes=report.sizes,
            detail=detail,
            of_allowed=None if difference is None or not allowed else difference / allowed,
            report=report,
        )
