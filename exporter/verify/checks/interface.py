"""Check of the interface: the packages take and return what the manifest says, and change nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest

from torch import Tensor

from exporter.data.rows import NamedBatch
from exporter.manifest import TensorEntry
from exporter.verify.cases import Cases
from exporter.verify.checks.check import CheckResult, Trial
from exporter.verify.checks.observing import ObservingCheck
from exporter.verify.errors import InterfaceBroken
from exporter.verify.observe import Behaviour, Layout
from exporter.verify.observe_dtypes import TakenAs


class Interface(ObservingCheck):
    """Names, order, dtypes, shapes and strides; inputs and the outputs of earlier calls stay as they are.

    Inputs of other dtypes, and those that lie otherwise, are refused or computed rightly.
    """

    name = "interface"
    title = "inputs and outputs as described"
    error = InterfaceBroken
    observation = "call"

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        return cases.must_agree

    def select_for_gate(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return one case of few rows."""
        return super().select(cases)

    def run(self, trial: Trial) -> CheckResult:
        """Compare the names of the inputs, and observe a call."""
        problem = next(self._problems_of_inputs(trial), "")
        observed = None if problem else self.observe(trial)
        if observed is not None and observed.call is not None:
            problem = next(self._problems_of_call(trial, observed.call), "")
            problem = problem or next(self._problems_of_dtypes(trial, observed.unchecked), "")
        return CheckResult(passed=not problem, sizes=trial.sizes, detail=problem)

    def _problems_of_inputs(self, trial: Trial) -> Iterator[str]:
        for link, taken in zip(self.runnable.chain, trial.running.taken, strict=True):
            for place, (name, promised) in enumerate(zip_longest(taken, link.order, fillvalue="none"), 1):
                if name != promised:
                    package = link.package.name
                    yield f"{package}: its input {place} is {name}, and the manifest says {promised}"

    def _problems_of_dtypes(self, trial: Trial, unchecked: Sequence[TakenAs]) -> Iterator[str]:
        for taken in unchecked:
            package = self.runnable.chain[taken.package].package.name
            place = f"{package}: its input {taken.input}"
            if taken.refusal:
                yield f"{place} as {taken.given} is refused for another reason than that: {taken.refusal}"
            else:
                yield f"{place} is computed wrongly as {taken.given} instead of refused"

    def _problems_of_call(self, trial: Trial, call: Behaviour) -> Iterator[str]:
        yield from (f"a call changes its input {name}" for name in call.changed_inputs)
        for name in call.changed_outputs:
            yield f"a later call changes the output {name} of an earlier one"
        for name in call.wrong_if_spread:
            yield (
                f"{name} is wrong for inputs whose rows do not lie one after the other; they are not refused"
            )
        if promised := self.runnable.outputs:
            found, names = [each.name for each in call.outputs], [each.name for each in promised]
            if found != names:
                yield f"the outputs are {', '.join(found)}, and the manifest says {', '.join(names)}"
            for entry, output in zip(promised, call.outputs, strict=False):
                yield from _problems_of_output(entry, output, trial.sizes)
        expected: Mapping[str, Tensor] = {}
        with suppress(Exception):  # what eager raises, the check of agreement reports
            expected = trial.expected
        for output in call.outputs:
            eager = expected.get(output.name)
            if eager is not None and eager.is_contiguous() and not _is_contiguous(output):
                shape, strides = list(output.shape), list(output.strides)
                yield f"{output.name} of shape {shape} has strides {strides}, and eager's lies row by row"


def _problems_of_output(entry: TensorEntry, output: Layout, sizes: Mapping[str, int]) -> Iterator[str]:
    if output.dtype != entry.dtype:
        yield f"{output.name} is {output.dtype}, and the manifest says {entry.dtype}"
    shape = [sizes.get(size, size) if isinstance(size, str) else size for size in entry.shape]
    known = [(one, other) for one, other in zip(shape, output.shape, strict=False) if isinstance(one, int)]
    if len(shape) != len(output.shape) or any(one != other for one, other in known):
        yield f"{output.name} is of shape {list(output.shape)}, and the manifest says {list(entry.shape)}"


def _is_contiguous(output: Layout) -> bool:
    """Return whether the numbers lie one after the other, row by row."""
    step = 1
    for size, stride in zip(reversed(output.shape), reversed(output.strides), strict=True):
        if size == 0:
            return True
        if size > 1 and stride != step:
            return False
        step *= size
    return True
