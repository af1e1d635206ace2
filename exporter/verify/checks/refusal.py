"""Check of refusal: the packages reject inputs that contradict each other, instead of computing with them."""

from collections.abc import Sequence

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.data.rows import NamedBatch
from exporter.errors import PackageCrashed
from exporter.manifest import CaseKind, CaseReport
from exporter.verify.cases import Cases
from exporter.verify.checks.check import Check, CheckResult, Trial
from exporter.verify.runner import Refused


class Refusal(Check):
    """Contradicting inputs must be refused; a crash is a failure of its case and does not end the others."""

    name = "refuses"
    title = "contradictions refused"
    activity = "must be refused"

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        return cases.must_be_refused

    def run(self, trial: Trial) -> CheckResult:
        """Run the packages on one case of contradicting inputs."""
        try:
            outputs = trial.outputs
        except PackageCrashed as crash:  # a package without checks may read past its inputs
            if as_out_of_memory(crash):
                raise
            return self._result(trial, crash.message, passed=False)
        if isinstance(outputs, Refused):
            return self._result(trial, str(outputs), passed=True)
        return self._result(trial, "was computed instead of refused", passed=False)

    def describe_place(self, trial: Trial) -> str:
        return f"{self.runnable.title}: {trial.batch.name}"

    def _result(self, trial: Trial, detail: str, *, passed: bool) -> CheckResult:
        report = CaseReport(
            name=trial.batch.name, kind=CaseKind.REFUSES, sizes={}, passed=passed, detail=detail
        )
        return CheckResult(passed=passed, detail=detail, report=report)
