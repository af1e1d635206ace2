"""Custom operators without a shape rule: found in eager runs, given one that other real runs bear out.

Without a rule torch.export cannot trace an operator. A rule is guessed from some runs, each size of a result
being a constant, a size of an argument, or a product or sum of two; it counts only if other runs agree.
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
from exporter.data.batch import Rows, verification_batches
from exporter.errors import ShapeRuleMissing
from exporter.manifest import InferredOp
from exporter.towers.tower import Tower

Sizes = tuple[int, ...]

_BATCHES = 4  # batches that operators are tried on


@dataclass(frozen=True, kw_only=True)
class OperatorRun:
    """One call of an operator: the sizes of its tensors, in order, and of its result."""

    sizes: tuple[Sizes, ...]
    dtypes: tuple[torch.dtype, ...]
    result: Sizes
    result_dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class SizeRule:
    """How one size of a result follows from the arguments' sizes: one of them, two of them, or none."""

    places: tuple[tuple[int, int], ...] = ()  # tensor and axis
    operation: Literal["", "+", "*"] = ""
    constant: int = 0

    def of(self, sizes: Sequence[Sizes]) -> int:
        values = [sizes[tensor][axis] for tensor, axis in self.places]
        if not values:
            return self.constant
        return math.prod(values) if self.operation == "*" else sum(values)

    @property
    def words(self) -> str:
        if not self.places:
            return str(self.constant)
        return f" {self.operation} ".join(f"size {axis} of tensor {tensor}" for tensor, axis in self.places)


@dataclass
class _RunRecorder(TorchDispatchMode):
    """Notes the calls of operators that have no shape rule."""

    runs: dict[torch._ops.OpOverload, list[OperatorRun]] = field(default_factory=dict)
    odd: dict[torch._ops.OpOverload, str] = field(default_factory=dict)

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
                self.odd[func] = "it does not return one contiguous tensor"
        return result


def infer_shape_rules(
    tower: Tower, rows: Rows, device: torch.device, *, allowed: bool
) -> tuple[InferredOp, ...]:
    """Try the tower's operators on real rows at several sizes, and infer the shape rules that lack.

    Raises:
        ShapeRuleMissing: naming the operator, because rules may not be inferred or none fits.
    """
    batches = islice(verification_batches(rows, tower.plan), _BATCHES)
    on_device = ({name: each.to(device) for name, each in batch.inputs.items()} for batch in batches)
    return register_shape_rules(tower.module, on_device, allowed=allowed)


def register_shape_rules(
    module: nn.Module, batches: Iterator[Mapping[str, Tensor]], *, allowed: bool
) -> tuple[InferredOp, ...]:
    """Run `module` on batches of different sizes, and register rules for operators that have none.

    Registered for this process, as long as it lives. Every other batch is kept to check what was guessed.

    Raises:
        ShapeRuleMissing: naming the operator, because rules may not be inferred or none fits.
    """
    seen = _RunRecorder()
    with torch.no_grad(), seen:
        for batch in batches:
            module(dict(batch))
    for operator in [*seen.odd, *([] if allowed else seen.runs)]:
        reason = seen.odd.get(operator, "the export does not allow to infer one")
        raise ShapeRuleMissing(f"operator {operator} has no shape rule; {reason}", where=str(operator))
    return tuple(_register_rule(operator, runs) for operator, runs in seen.runs.items())


def infer_rules(runs: Sequence[OperatorRun]) -> tuple[SizeRule, ...]:
    """A rule for each size of the result, guessed from every other run and right for all of them.

    Raises:
        ValueError: naming the size that no rule fits, or that runs do not tell enough.
    """
    if len({run.sizes for run in runs}) < 3:
        raise ValueError("it was not run at three different sizes")
    guessing, checking = runs[::2], runs[1::2]
    rules = []
    for axis in range(len(runs[0].result)):
        fitting = [rule for rule in _candidate_rules(guessing) if _fits(rule, guessing, axis)]
        borne_out = [rule for rule in fitting if _fits(rule, checking, axis)]
        if not borne_out:
            raise ValueError(f"no rule fits size {axis} of its result in all {len(runs)} runs")
        rules.append(borne_out[0])
    return tuple(rules)


def _register_rule(operator: torch._ops.OpOverload, runs: Sequence[OperatorRun]) -> InferredOp:
    try:
        rules = infer_rules(runs)
    except ValueError as error:
        raise ShapeRuleMissing(
            f"operator {operator} has no shape rule, and {error}", where=str(operator)
        ) from error
    dtype = runs[0].result_dtype
    same = next((place for place, each in enumerate(runs[0].dtypes) if each == dtype), None)

    def rule_of(*args: object, **kwargs: object) -> Tensor:
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        sizes = [tuple(each.shape) for each in tensors]
        made = dtype if same is None else tensors[same].dtype
        return tensors[0].new_empty([rule.of(sizes) for rule in rules], dtype=made)

    torch.library.register_fake(operator.name().partition(".")[0], rule_of)
    return InferredOp(name=str(operator), sizes=tuple(rule.words for rule in rules), runs=len(runs))


def _candidate_rules(runs: Sequence[OperatorRun]) -> Iterator[SizeRule]:
    """Simple rules first: a size of an argument, a constant, then products and sums of two sizes."""
    places = [(tensor, axis) for tensor, sizes in enumerate(runs[0].sizes) for axis in range(len(sizes))]
    yield from (SizeRule(places=(place,)) for place in places)
    yield from (SizeRule(constant=constant) for constant in dict.fromkeys(runs[0].result))
    for pair in combinations_with_replacement(places, 2):
        yield SizeRule(places=pair, operation="+")
        yield SizeRule(places=pair, operation="*")


def _fits(rule: SizeRule, runs: Sequence[OperatorRun], axis: int) -> bool:
    return all(len(run.result) > axis and rule.of(run.sizes) == run.result[axis] for run in runs)
