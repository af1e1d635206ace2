"""Infer shape rules of custom operators that have none, from runs of the model in eager mode.

Without a shape rule (a fake implementation) torch.export cannot trace an operator. A rule is guessed from
some of the runs: each size of a result is a constant, a size of an argument, or the product or sum of two
sizes. It is accepted only if it is right for the other runs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, islice
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from exporter.aoti.torch_private import has_shape_rule
from exporter.data.batch import verification_batches
from exporter.data.rows import Rows
from exporter.errors import ShapeRuleMissing
from exporter.manifest import InferredOp
from exporter.towers.tower import Tower

Sizes = tuple[int, ...]

_BATCHES = 4  # number of batches to run the operators on


@dataclass(frozen=True, kw_only=True)
class OperatorRun:
    """One call of an operator: sizes and dtypes of its tensor arguments, in order, and of its result."""

    sizes: tuple[Sizes, ...]
    dtypes: tuple[torch.dtype, ...]
    result: Sizes
    result_dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class SizeRule:
    """Rule for one size of a result: a constant, a size of an argument, or the sum or product of two."""

    places: tuple[tuple[int, int], ...] = ()  # (tensor, axis) of each size
    operation: Literal["", "+", "*"] = ""
    constant: int = 0

    def apply(self, sizes: Sequence[Sizes]) -> int:
        values = [sizes[tensor][axis] for tensor, axis in self.places]
        if not values:
            return self.constant
        return math.prod(values) if self.operation == "*" else sum(values)

    @property
    def description(self) -> str:
        if not self.places:
            return str(self.constant)
        return f" {self.operation} ".join(f"size {axis} of tensor {tensor}" for tensor, axis in self.places)


@dataclass
class _RunRecorder(TorchDispatchMode):
    """Records the calls of operators that have no shape rule."""

    runs: dict[torch._ops.OpOverload, list[OperatorRun]] = field(default_factory=dict)
    unsupported: dict[torch._ops.OpOverload, str] = field(default_factory=dict)  # with the reason

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate it

    def __hash__(self) -> int:
        return id(self)

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        if not has_shape_rule(func):
            tensors = [each for each in tree_leaves((args, kwargs or {})) if isinstance(each, Tensor)]
            if isinstance(result, Tensor) and result.is_contiguous():
                run = OperatorRun(
                    sizes=tuple(tuple(each.shape) for each in tensors),
                    dtypes=tuple(each.dtype for each in tensors),
                    result=tuple(result.shape),
                    result_dtype=result.dtype,
                )
                self.runs.setdefault(func, []).append(run)
            else:
                self.unsupported[func] = "it does not return one contiguous tensor"
        return result


def infer_shape_rules(
    tower: Tower, rows: Rows, device: torch.device, *, allowed: bool
) -> tuple[InferredOp, ...]:
    """Run the tower on real rows at several sizes, and infer the missing shape rules of its operators.

    Raises:
        ShapeRuleMissing: an operator has no rule, and inferring is not `allowed` or no rule fits.
    """
    batches = islice(verification_batches(rows, tower.plan), _BATCHES)
    on_device = ({name: each.to(device) for name, each in batch.inputs.items()} for batch in batches)
    return register_shape_rules(tower.module, on_device, allowed=allowed)


def register_shape_rules(
    module: nn.Module, batches: Iterator[Mapping[str, Tensor]], *, allowed: bool
) -> tuple[InferredOp, ...]:
    """Run `module` on batches of different sizes, and register rules for operators that have none.

    The rules stay registered in this process. They are guessed from every other batch and checked on the
    rest.

    Raises:
        ShapeRuleMissing: an operator has no rule, and inferring is not `allowed` or no rule fits.
    """
    recorder = _RunRecorder()
    with torch.no_grad(), recorder:
        for batch in batches:
            module(dict(batch))
    for operator in [*recorder.unsupported, *([] if allowed else recorder.runs)]:
        reason = recorder.unsupported.get(operator, "the export does not allow inferring one")
        raise ShapeRuleMissing(f"operator {operator} has no shape rule; {reason}", where=str(operator))
    return tuple(_register_rule(operator, runs) for operator, runs in recorder.runs.items())


def infer_rules(runs: Sequence[OperatorRun]) -> tuple[SizeRule, ...]:
    """Return a rule for each size of the result, guessed from every other run and right for all runs.

    Raises:
        ValueError: no rule fits one of the sizes, or there are too few runs of different sizes.
    """
    if len({run.sizes for run in runs}) < 3:
        raise ValueError("it was not run at three different sizes")
    guessing, checking = runs[::2], runs[1::2]
    rules = []
    for axis in range(len(runs[0].result)):
        fitting = [rule for rule in _candidate_rules(guessing) if _fits(rule, guessing, axis)]
        confirmed = [rule for rule in fitting if _fits(rule, checking, axis)]
        if not confirmed:
            raise ValueError(f"no rule fits size {axis} of its result in all {len(runs)} runs")
        rules.append(confirmed[0])
    return tuple(rules)


def _register_rule(operator: torch._ops.OpOverload, runs: Sequence[OperatorRun]) -> InferredOp:
    try:
        rules = infer_rules(runs)
    except ValueError as error:
        raise ShapeRuleMissing(
            f"operator {operator} has no shape rule, and {error}", where=str(operator)
        ) from error
    dtype = runs[0].result_dtype
    like_argument = next((place for place, each in enumerate(runs[0].dtypes) if each == dtype), None)

    def rule_of(*args: object, **kwargs: object) -> Tensor:
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        sizes = [tuple(each.shape) for each in tensors]
        result_dtype = dtype if like_argument is None else tensors[like_argument].dtype
        return tensors[0].new_empty([rule.apply(sizes) for rule in rules], dtype=result_dtype)

    torch.library.register_fake(operator.name().partition(".")[0], rule_of)
    return InferredOp(name=str(operator), sizes=tuple(rule.description for rule in rules), runs=len(runs))


def _candidate_rules(runs: Sequence[OperatorRun]) -> Iterator[SizeRule]:
    """Yield rules, simple ones first: a size of an argument, a constant, sums and products of two sizes."""
    places = [(tensor, axis) for tensor, sizes in enumerate(runs[0].sizes) for axis in range(len(sizes))]
    yield from (SizeRule(places=(place,)) for place in places)
    yield from (SizeRule(constant=constant) for constant in dict.fromkeys(runs[0].result))
    for pair in combinations_with_replacement(places, 2):
        yield SizeRule(places=pair, operation="+")
        yield SizeRule(places=pair, operation="*")


def _fits(rule: SizeRule, runs: Sequence[OperatorRun], axis: int) -> bool:
    return all(len(run.result) > axis and rule.apply(run.sizes) == run.result[axis] for run in runs)
