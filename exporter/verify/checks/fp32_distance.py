"""Check of lower precision: how far each output is from the model in fp32, over all cases."""

from collections.abc import Mapping, Sequence

from exporter.data.rows import NamedBatch
from exporter.lowering.errors import PrecisionLost
from exporter.manifest import Fp32Report, OutputDifference, VerificationReport
from exporter.verify.cases import Cases
from exporter.verify.checks.check import Check, CheckResult, Trial
from exporter.verify.numerics import Difference, compare, measure_scales
from exporter.verify.runnable_tower import RunnableTower
from exporter.verify.runner import Refused


class Fp32Distance(Check):
    """The worst difference of each output is gathered; one that is not finite is worse than any.

    It is judged at the end: a package that does not even agree with eager is the first thing to report.
    """

    name = "fp32"
    title = "package against the model in fp32"
    error = PrecisionLost
    error_names_case = False  # `where` is the output
    gate_only = True

    def __init__(self, runnable: RunnableTower) -> None:
        super().__init__(runnable)
        self._usual_scales: Mapping[str, float] = {}
        self._worst: dict[str, tuple[Difference, str]] = {}  # by output, with the case

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return all cases that must agree, where anything is of lower precision."""
        return cases.must_agree if self.runnable.fp32 is not None else ()

    def prepare(self, cases: Cases, largest: Trial | None) -> None:
        """Measure each output's scale in the largest ordinary batch, as a reference for small batches."""
        if self.runnable.fp32 is not None and largest is not None:
            self._usual_scales = measure_scales(largest.expected_in_fp32)

    def run(self, trial: Trial) -> CheckResult:
        """Compare the outputs of one case with those in fp32, and keep the worst."""
        reference, outputs = self.runnable.fp32, trial.outputs
        if reference is None or isinstance(outputs, Refused):
            return CheckResult()
        expected = reference.settle_ties(trial.batch.inputs, trial.expected_in_fp32, outputs)
        for name, actual in outputs.items():
            found = compare({name: expected[name]}, {name: actual}, usual=self._usual_scales)
            worst, _ = self._worst.get(name, (None, ""))
            if worst is None or found.relative > worst.relative:
                self._worst[name] = found, trial.batch.name
        return CheckResult()

    def conclude(self, report: VerificationReport) -> VerificationReport:
        """Add the worst difference of each output.

        Raises:
            PrecisionLost: naming the output and the case, where it is more than is allowed.
        """
        if self.runnable.fp32 is None:
            return report
        allowed = self.runnable.fp32.tolerance
        for name, (worst, case) in self._worst.items():
            if not worst.within(allowed):
                how = worst.problem or f"differs by {worst.largest:.3g} at scale {worst.scale:.3g}"
                raise PrecisionLost(
                    f"{self.runnable.title}: {case}: {name} {how} from the model in fp32, allowed "
                    f"{allowed:g} of it",
                    where=name,
                )
        outputs = tuple(
            OutputDifference(output=name, largest=worst.largest, scale=worst.scale, case=case)
            for name, (worst, case) in self._worst.items()
        )
        return report.model_copy(update={"fp32": Fp32Report(tolerance=allowed, outputs=outputs)})
