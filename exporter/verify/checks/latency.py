"""Measurement of latency: median milliseconds per call, eager and compiled; judges nothing."""

import statistics
import time
from collections.abc import Sequence

from exporter.data.rows import NamedBatch
from exporter.manifest import Latency, VerificationReport
from exporter.verify.cases import Cases
from exporter.verify.checks.check import Check, CheckResult, Trial
from exporter.verify.runnable_tower import RunnableTower
from exporter.verify.runner import Refused

_REPEATS = 20  # at most
_LIMIT_S = 0.25  # for the repeats of one size, each by eager and by the package


class LatencyMeasurement(Check):
    """Eager and packages are timed on the same batch, one after the other."""

    name = "latency"
    title = "latency"
    gate_only = True

    def __init__(self, runnable: RunnableTower) -> None:
        super().__init__(runnable)
        self._latency: list[Latency] = []

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return the smallest, a usual and the largest size."""
        return cases.typical

    def run(self, trial: Trial) -> CheckResult:
        """Time as many calls of one case as the limits allow."""
        if isinstance(trial.outputs, Refused):  # another check's failure
            return CheckResult()
        times_ms: list[float] = []
        # On the device, where the package finds its inputs as well.
        inputs = {name: value.to(self.runnable.device) for name, value in trial.batch.inputs.items()}
        while len(times_ms) < _REPEATS and sum(times_ms) < _LIMIT_S * 1e3:
            begun = time.perf_counter()
            self.runnable.run_eager(inputs)
            times_ms.append((time.perf_counter() - begun) * 1e3)
        _, compiled_ms = trial.running.time(trial.batch.inputs, repeats=len(times_ms))
        assert compiled_ms is not None
        eager_ms = statistics.median(times_ms)
        self._latency.append(Latency(batch=trial.sizes["batch"], eager_ms=eager_ms, compiled_ms=compiled_ms))
        return CheckResult()

    def conclude(self, report: VerificationReport) -> VerificationReport:
        """Add the times."""
        return report.model_copy(update={"latency": tuple(self._latency)})
