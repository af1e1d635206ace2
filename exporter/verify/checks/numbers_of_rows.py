"""Check of every number of rows, as far as time allows: a single size may be wrong that no case has."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from torch import Tensor

from exporter.data.rows import NamedBatch
from exporter.dims.plan import BATCH, DimPlan
from exporter.verify.cases import Cases
from exporter.verify.checks.check import Check, CheckResult, Trial
from exporter.verify.numerics import compare, measure_scales
from exporter.verify.runner import Refused

_LIMIT_S = 60.0
_COUNTED = frozenset({"values", "weights", "key_lengths"})  # tensors of a feature whose size others count


class NumbersOfRows(Check):
    """The packages compute the first 1, 2, 3, … rows of the largest batch; the gate has no time for that."""

    name = "rows"
    title = "every number of rows"

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        return cases.ordinary[-1:]

    def select_for_gate(self, cases: Cases) -> Sequence[NamedBatch]:
        return ()

    def run(self, trial: Trial) -> CheckResult:
        """Compare with eager at one number of rows after the other, spread evenly until time is up."""
        if not self._is_right(trial):  # another check's failure
            return CheckResult(sizes=trial.sizes, detail="not tried: the largest batch fails")
        largest, done, until = trial.sizes[BATCH], 0, time.monotonic() + _LIMIT_S
        usual = measure_scales(trial.expected)
        for rows in spread_evenly(largest):
            if time.monotonic() > until:
                break
            inputs = take_first_rows(self.runnable.tower.plan, trial.batch.inputs, rows)
            if inputs is None:
                return CheckResult(detail="not tried: no input counts the elements of a row")
            if problem := self._find_problem(trial, inputs, usual):
                sizes = {**trial.sizes, BATCH: rows}
                return CheckResult(passed=False, sizes=sizes, detail=f"with {rows} rows {problem}")
            done += 1
        tried = f"{done} of {largest} numbers of rows, in {_LIMIT_S:g} s" if done < largest else f"all {done}"
        return CheckResult(sizes=trial.sizes, detail=tried)

    def _is_right(self, trial: Trial) -> bool:
        with suppress(Exception):  # of eager or of the packages, which other checks report
            if not isinstance(trial.outputs, Refused):
                return not self._describe(trial.batch.inputs, trial.expected, trial.outputs)
        return False

    def _find_problem(self, trial: Trial, inputs: Mapping[str, Tensor], usual: Mapping[str, float]) -> str:
        expected = self.runnable.run_eager(inputs)
        try:
            outputs = trial.running.run(inputs)
        except Refused as refusal:
            return f"they refuse: {refusal}"
        return self._describe(inputs, expected, outputs, usual)

    def _describe(
        self,
        inputs: Mapping[str, Tensor],
        expected: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
        usual: Mapping[str, float] | None = None,
    ) -> str:
        settled = self.runnable.settle_ties(inputs, expected, outputs)
        difference = compare(settled, outputs, usual=usual)
        if difference.within(self.runnable.tolerance):
            return ""
        if difference.problem:
            return f"{difference.output or 'outputs'}: {difference.problem}"
        return f"{difference.output} differs by {difference.largest:.3g} at scale {difference.scale:.3g}"


def spread_evenly(largest: int) -> Iterator[int]:
    """Yield 1 to `largest`, each once, so that those yielded at any time lie evenly."""
    bits = largest.bit_length()
    turned = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return (number for number in turned if 1 <= number <= largest)


def take_first_rows(plan: DimPlan, inputs: Mapping[str, Tensor], rows: int) -> dict[str, Tensor] | None:
    """Return the inputs of the first rows only; None where it is not known what counts a dim."""
    sizes = {BATCH: rows}
    for _ in plan.dims:  # as lengths may count the elements of a dim that other lengths count
        for tensor in plan.inputs:
            feature, _, part = tensor.filled_with.rpartition(".")
            dim = tensor.shape[0]
            if not isinstance(dim, str) or dim in sizes or part not in _COUNTED:
                continue
            within = plan.input_filled_with(f"{feature}.key_lengths") if part != "key_lengths" else None
            counts = within or plan.input_filled_with(f"{feature}.lengths")
            if counts is not None and counts.shape[0] in sizes:
                sizes[dim] = int(inputs[counts.name][: sizes[str(counts.shape[0])]].sum())
    first = [tensor.shape[0] for tensor in plan.inputs]
    inner = {axis for tensor in plan.inputs for axis in tensor.shape[1:] if isinstance(axis, str)}
    if inner or not sizes.keys() >= set(first):
        return None
    return {tensor.name: inputs[tensor.name][: sizes[str(tensor.shape[0])]] for tensor in plan.inputs}
