from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from exporter.errors import ShapeRuleMissing
from exporter.trace.shape_rules import OperatorRun, infer_rules, register_shape_rules

LIBRARY = torch.library.Library("unruled", "FRAGMENT")
for name, kernel in {
    "crossed": lambda x, w: (x @ w).repeat(2, 1),
    "forbidden": lambda x, w: x @ w,
    "by_value": lambda x, w: x[x.sum(1) > 0] @ w,
}.items():
    LIBRARY.define(f"{name}(Tensor x, Tensor w) -> Tensor")
    LIBRARY.impl(name, kernel, "CPU")


class Uses(nn.Module):
    def __init__(self, operator: str) -> None:
        super().__init__()
        self._operator = getattr(torch.ops.unruled, operator)
        self.weight = nn.Parameter(torch.rand(3, 4))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": self._operator(inputs["x"], self.weight) + 1}


def batches() -> Iterator[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return ({"x": torch.randn(rows, 3, generator=generator)} for rows in (5, 2, 7, 11))


def test_a_rule_is_inferred_and_makes_the_operator_traceable() -> None:
    module = Uses("crossed")
    [given] = register_shape_rules(module, batches(), allowed=True)
    assert given.name == "unruled.crossed.default"
    assert given.sizes == ("size 0 of tensor 0 + size 0 of tensor 0", "size 1 of tensor 1")
    rows = Dim("rows", min=1, max=64)
    program = torch.export.export(
        module, ({"x": torch.rand(5, 3)},), dynamic_shapes=({"x": {0: rows}},), strict=False
    )
    inputs = {"x": torch.rand(9, 3)}
    torch.testing.assert_close(program.module()(inputs)["y"], module(inputs)["y"])


def test_without_leave_the_operator_is_named_before_tracing() -> None:
    with pytest.raises(ShapeRuleMissing, match="unruled.forbidden.default has no shape rule; the exp"):
        register_shape_rules(Uses("forbidden"), batches(), allowed=False)


def test_a_size_that_depends_on_values_is_refused() -> None:
    with pytest.raises(ShapeRuleMissing, match="no rule fits size 0 of its result"):
        register_shape_rules(Uses("by_value"), batches(), allowed=True)


def test_operators_with_rules_need_none() -> None:
    assert register_shape_rules(nn.Sequential(), iter(()), allowed=False) == ()


def test_a_guess_that_other_runs_do_not_bear_out_is_dropped() -> None:
    """Two runs alone would say the result has 6 rows."""
    made = [(5, 6), (6, 7), (5, 6), (9, 10)]
    runs = [
        OperatorRun(sizes=((rows, 3),), dtypes=(torch.float32,), result=(size,), result_dtype=torch.float32)
        for rows, size in made
    ]
    with pytest.raises(ValueError, match="no rule fits size 0"):
        infer_rules(runs)
