"""Measurement of latency: median milliseconds per call, eager and compiled; judges nothing."""

import statistics
import time
from collections.abc import Sequence

from exporter.data.rows import NamedBatch
from exporter.manifest import Latency, VerificationReport
from exporter.verify.cases import Cases
from exporter.verify.checks.check import REPEATS_LIMIT_S, Check, CheckResult, Trial
from exporter.verify.runnable_tower import RunnableTower
from exporter.verify.runner import Refused

_REPEATS = 7  # at most


class LatencyMeasurement(Check):
    """Eager and packages are timed on the same batch, one after the other.

    The runs that are made anyway count: the packages' repeats, and eager's only run where it takes long.
    """

    name = "latency"
    title = "latency"
    gate_only = True
    repeats = _REPEATS
    times_eager = True

    def __init__(self, runnable: RunnableTower) -> None:
        super().__init__(runnable)
        self._latency: list[Latency] = []

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return the smallest, a usual and the largest size."""
        return cases.typical

    def run(self, trial: Trial) -> CheckResult:
        """Time as many calls of one case as the limits allow."""
        answer = trial.answer
        if isinstance(answer, Refused):  # another check's failure
            return CheckResult()
        self._latency.append(
            Latency(
                batch=trial.sizes["batch"],
                eager_ms=self._time_eager(trial),
                compiled_ms=statistics.median(answer.times_ms),
            )
        )
        return CheckResult()

    def _time_eager(self, trial: Trial) -> float:
        """Return the median milliseconds of repeats; those of the first run where they would take long."""
        first_ms, times_ms = trial.eager.milliseconds, list[float]()
        if first_ms > REPEATS_LIMIT_S * 1e3:
            return first_ms
        # On the device, where the package finds its inputs as well.
        inputs = {name: value.to(self.runnable.device) for name, value in trial.batch.inputs.items()}
        while len(times_ms) < _REPEATS and sum(times_ms) < REPEATS_LIMIT_S * 1e3:
            begun = time.perf_counter()
            self.runnable.run_eager(inputs)
            times_ms.append((time.perf_counter() - begun) * 1e3)
        return statistics.median(times_ms)

    def conclude(self, report: VerificationReport) -> VerificationReport:
        """Add the times."""
        return report.model_copy(update={"latency": tuple(self._latency)})
