"""Observing checks: what calls of the packages do beside computing, seen with two sets of inputs."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from torch import Tensor

from exporter.data.rows import NamedBatch
from exporter.verify.cases import Cases
from exporter.verify.checks.check import Check, Trial
from exporter.verify.runner import Observed, Refused


class ObservingCheck(Check):
    """A check that calls the packages with a case and with the same rows in another order."""

    observation: ClassVar[Literal["call", "growth", "calls_at_once", "steps"]]
    _smallest: Mapping[str, Tensor] | None = None

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return one case of few rows: it takes long, and what it looks for does not depend on sizes."""
        return (cases.ordinary or cases.must_agree)[:2][-1:]

    def prepare(self, cases: Cases, largest: Trial | None) -> None:
        """Keep a case for where rows in another order are refused."""
        ordinary = cases.ordinary or cases.must_agree
        self._smallest = ordinary[0].inputs if ordinary else None

    def observe(self, trial: Trial) -> Observed | None:
        """Return what was observed; None if the packages refuse the case: another check's failure."""
        inputs = trial.batch.inputs
        turned = {name: value.flip(0) if value.dim() else value for name, value in inputs.items()}
        for others in (turned, self._smallest or inputs):
            try:
                return trial.running.observe(
                    self.observation, inputs, others, rounding=self.runnable.tolerance
                )
            except Refused:
                continue
        return None
