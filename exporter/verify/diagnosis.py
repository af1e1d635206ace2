"""Diagnosis of a package that disagrees with eager: what is wrong with it, in the words of its contract.

It runs after a failure only, and looks for the usual faults: inputs or outputs in each other's place, an id
whose rows are all wrong, and the smallest number of rows at which the package fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, islice

import torch
from torch import Tensor
from torch.func import functional_call

from exporter.data.rows import NamedBatch
from exporter.dims.plan import BATCH, DimPlan
from exporter.dims.torch_dims import input_sizes
from exporter.verify.checks.check import describe_sizes
from exporter.verify.checks.numbers_of_rows import take_first_rows
from exporter.verify.numerics import compare, measure_scales
from exporter.verify.runnable_tower import RunnableTower
from exporter.verify.runner import PackageRunner, Refused

_MOST_PAIRS = 300  # of inputs that eager is run with in each other's place
_MANY_ENOUGH = 3  # rows that no other exchange explains by accident
_MOST_ROWS = 64  # of a case on which all these pairs are tried, where there is one

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """One failing case: what eager gives and what the packages give, None if they refuse it."""

    batch: NamedBatch
    rows: int
    expected: Tensors
    actual: Tensors | None


def diagnose(runnable: RunnableTower, failed: Sequence[NamedBatch]) -> str:
    """Return what is wrong, in a sentence or more; empty if it is none of the usual faults.

    The packages run once more, in a process of their own.
    """
    with runnable.make_runner() as runner:
        seen = [_look_at(runnable, runner, batch) for batch in failed]
        found = [
            _find_swapped_outputs(runnable, seen),
            _find_swapped_inputs(runnable, runner, seen),
            _find_swapped_weights(runnable, seen),
            _find_wrong_id(runnable, seen),
            _find_smallest(runnable, runner, seen),
        ]
    return "; ".join(filter(None, found))


def _look_at(runnable: RunnableTower, runner: PackageRunner, batch: NamedBatch) -> _Failure:
    expected = runnable.run_eager(batch.inputs)
    return _Failure(
        batch=batch,
        rows=input_sizes(runnable.tower.plan, batch.inputs)[BATCH],
        expected=expected,
        actual=_run(runner, batch.inputs),
    )


def _run(runner: PackageRunner, inputs: Tensors) -> dict[str, Tensor] | None:
    with suppress(Refused):
        return runner.run(inputs)
    return None


def _agree(
    runnable: RunnableTower,
    expected: Tensors,
    actual: Tensors | None,
    usual: Mapping[str, float] | None = None,
) -> bool:
    return actual is not None and compare(expected, actual, usual=usual).within(runnable.tolerance)


def _find_swapped_outputs(runnable: RunnableTower, seen: Sequence[_Failure]) -> str:
    """Name two outputs of which each is what the other should be, in all failing cases."""
    answered = [each for each in seen if each.actual is not None]
    for one, other in combinations(answered[0].expected if answered else (), 2):

        def stand_in_each_others_place(failure: _Failure, one: str = one, other: str = other) -> bool:
            actual = dict(failure.actual or {})
            if {one, other} <= actual.keys():
                actual[one], actual[other] = actual[other], actual[one]
            return _agree(runnable, failure.expected, actual)

        if all(map(stand_in_each_others_place, answered)):
            return f"the outputs {one} and {other} are in each other's place"
    return ""


def _find_swapped_inputs(runnable: RunnableTower, runner: PackageRunner, seen: Sequence[_Failure]) -> str:
    """Name two inputs that the packages take for each other.

    They give what eager gives if these two are exchanged, wherever eager takes the exchanged inputs.
    """
    tried = sorted(seen, key=lambda each: (each.rows > _MOST_ROWS, each.rows < _MANY_ENOUGH, each.rows))[:3]
    for one, other in islice(_alike(runnable.tower.plan), _MOST_PAIRS):
        if any(_explains(runnable, runner, failure.batch, one, other) for failure in tried) and not any(
            _contradicts(runnable, failure, one, other) for failure in seen
        ):
            return f"the inputs {one} and {other} are in each other's place"
    return ""


def _find_swapped_weights(runnable: RunnableTower, seen: Sequence[_Failure]) -> str:
    """Name two weights of one shape with which eager gives what the packages give, if it exchanges them."""
    module, answered = runnable.tower.module, [each for each in seen if each.actual is not None]
    if not answered:
        return ""
    tried = min(answered, key=lambda each: (each.rows < _MANY_ENOUGH, each.rows))
    inputs, state = runnable.on_device(tried.batch.inputs), dict(module.state_dict())
    pairs = ((a, b) for a, b in combinations(state, 2) if _layout(state[a]) == _layout(state[b]))
    for one, other in islice(pairs, _MOST_PAIRS):
        exchanged = {one: state[other], other: state[one]}
        with torch.no_grad():
            outputs = functional_call(module, exchanged, (inputs,))
        if _agree(runnable, {name: value.cpu() for name, value in outputs.items()}, tried.actual):
            return f"the weights {one} and {other} are in each other's place"
    return ""


def _layout(weight: Tensor) -> tuple[torch.dtype, torch.Size]:
    return weight.dtype, weight.shape


def _exchange(inputs: Tensors, one: str, other: str) -> dict[str, Tensor]:
    return {**inputs, one: inputs[other], other: inputs[one]}


def _explains(
    runnable: RunnableTower, runner: PackageRunner, batch: NamedBatch, one: str, other: str
) -> bool:
    """Return whether packages give, on exchanged inputs, what eager gives on those of the case."""
    if batch.inputs[one].shape != batch.inputs[other].shape:
        return False
    expected = runnable.run_eager(batch.inputs)
    return _agree(runnable, expected, _run(runner, _exchange(batch.inputs, one, other)))


def _contradicts(runnable: RunnableTower, failure: _Failure, one: str, other: str) -> bool:
    """Return whether eager on exchanged inputs gives other numbers than the packages in this case."""
    inputs = failure.batch.inputs
    if failure.actual is None or inputs[one].shape != inputs[other].shape:
        return False
    with suppress(Exception):  # eager need not take them
        return not _agree(runnable, runnable.run_eager(_exchange(inputs, one, other)), failure.actual)
    return False


def _alike(plan: DimPlan) -> Iterator[tuple[str, str]]:
    """Yield the pairs of inputs of one dtype and one shape."""
    for one, other in combinations(plan.inputs, 2):
        if (one.dtype, one.shape) == (other.dtype, other.shape):
            yield one.name, other.name


def _find_wrong_id(runnable: RunnableTower, seen: Sequence[_Failure]) -> str:
    """Name an input and the one id in it that all wrong rows have, and no right row."""
    plan = runnable.tower.plan
    suspects: dict[str, set[int]] = {}
    has_right_rows = False
    for failure in seen:
        wrong = _wrong_rows(runnable, failure)
        if wrong is None or not bool(wrong.any()):
            continue
        has_right_rows |= not bool(wrong.all())
        for name, ids, rows in _ids_by_row(plan, failure.batch.inputs):
            hit = [set(ids[rows == row].tolist()) for row in wrong.nonzero().flatten().tolist()]
            common = set.intersection(*hit) - set(ids[~wrong[rows]].tolist())
            suspects[name] = suspects.get(name, common) & common
    named = {name: ids for name, ids in suspects.items() if len(ids) == 1}
    if not has_right_rows or len(named) != 1:
        return ""
    [(name, [one])] = named.items()
    return f"all wrong rows have id {one} of input {name}, and no other row has it"


def _wrong_rows(runnable: RunnableTower, failure: _Failure) -> Tensor | None:
    """Return which rows differ from eager, None if outputs have no rows or there is no answer."""
    wrong = torch.zeros(failure.rows, dtype=torch.bool)
    for name, expected in failure.expected.items():
        actual = (failure.actual or {}).get(name)
        if actual is None or actual.shape != expected.shape or expected.shape[:1] != (failure.rows,):
            return None
        allowed = runnable.tolerance * float(expected.double().abs().max())
        off = (expected.double() - actual.double()).abs().reshape(failure.rows, -1).amax(1)
        wrong |= ~(off <= allowed)  # NaN is wrong
    return wrong


def _ids_by_row(plan: DimPlan, inputs: Tensors) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield each input of ids with the number of the row that each of them belongs to."""
    rows = inputs[plan.inputs_of(BATCH)[0].name].shape[0]
    for tensor in plan.inputs:
        ids = inputs[tensor.name].cpu()
        if ids.is_floating_point() or ids.dim() != 1 or not tensor.filled_with.endswith(".values"):
            continue
        if tensor.shape == (BATCH,):
            yield tensor.name, ids, torch.arange(rows)
            continue
        lengths = plan.input_filled_with(f"{tensor.filled_with.removesuffix('.values')}.lengths")
        counts = inputs[lengths.name].cpu() if lengths else None
        if counts is not None and int(counts.sum()) == len(ids):
            yield tensor.name, ids, torch.repeat_interleave(torch.arange(len(counts)), counts.long())


def _find_smallest(runnable: RunnableTower, runner: PackageRunner, seen: Sequence[_Failure]) -> str:
    """Name the fewest first rows of a failing case with which the packages still fail."""
    smallest = min(seen, key=lambda failure: (failure.rows, sum(map(len, failure.batch.inputs.values()))))
    plan, inputs = runnable.tower.plan, smallest.batch.inputs
    usual = measure_scales(max(seen, key=lambda failure: failure.rows).expected)
    low, high, sizes = 0, smallest.rows, input_sizes(plan, inputs)
    while high - low > 1:
        middle = (low + high) // 2
        cut = take_first_rows(plan, inputs, middle)
        if cut is None:
            break
        if _agree(runnable, runnable.run_eager(cut), _run(runner, cut), usual):
            low = middle
        else:
            high, sizes = middle, input_sizes(plan, cut)
    passes = f", and passes with {low} rows of it" if low else ""
    return f"the smallest that fails: {describe_sizes(sizes)}{passes}"
