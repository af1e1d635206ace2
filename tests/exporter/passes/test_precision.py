import pytest
import torch
from torch import Tensor, nn

from exporter.errors import PassRefused
from exporter.passes.editable import EditableProgram
from exporter.passes.precision import set_precision
from tests.exporter.passes.conftest import Nested, TwoNames, rows, traced


class TiedHead(nn.Module):
    """The embedding's weight is read again outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": self.inner(inputs["x"]) @ self.inner.weight}


@pytest.mark.parametrize(("module", "name"), [(Nested(), "p.n"), (Nested(), "p"), (TwoNames(), "a")])
def test_a_submodule_is_computed_in_the_precision_and_the_rest_is_not(module: nn.Module, name: str) -> None:
    program = EditableProgram(traced(module))
    set_precision(program, name, torch.bfloat16)
    again = traced(program)
    assert {each.dtype for each in again.state_dict.values()} == {torch.bfloat16}
    linear = [node for node in again.graph.nodes if node.target is torch.ops.aten.linear.default]
    assert {node.meta["val"].dtype for node in linear} == {torch.bfloat16}
    given, expected = again.module()(rows(9))["y"].detach(), module(rows(9))["y"].detach()
    assert given.dtype is torch.float32
    difference = float((given - expected).abs().max() / expected.abs().max())
    assert 1e-5 < difference < 2e-2


def test_a_weight_that_others_read_as_well_is_refused() -> None:
    with pytest.raises(PassRefused, match="inner.weight is read by matmul too"):
        set_precision(EditableProgram(traced(TiedHead())), "inner", torch.float16)
