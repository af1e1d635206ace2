import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exporter.aoti.torch_loader import Package
from exporter.errors import PassRefused
from exporter.passes.editable import EditableProgram
from exporter.passes.swap import swap_attribute, swap_module
from exporter.passes.variants import variants
from tests.compiled_package import compile_package
from tests.exporter.passes.conftest import (
    FALSE,
    TRUE,
    Adds,
    Nested,
    TrueThenFalse,
    TwoNames,
    Weighted,
    assert_same,
    traced,
)


class AddsMore(nn.Module):
    def forward(self, x: Tensor, first: bool) -> Tensor:
        return x + 10 if first else x + 20


def test_true_and_false_give_16_and_never_15() -> None:
    program = EditableProgram(traced(TrueThenFalse(), preserved=("n",)))
    assert swap_module(program, "n", Adds()) == ("n", "n@1")
    assert program({"x": torch.ones(1, 3)})["y"].tolist() == [[16, 16, 16]]
    assert traced(program).module()({"x": torch.ones(2, 3)})["y"].unique().tolist() == [16]


def test_only_a_chosen_variant_is_replaced() -> None:
    program = EditableProgram(traced(TrueThenFalse(), preserved=("n",)))
    assert swap_module(program, "n", AddsMore(), only=["n@1"]) == ("n@1",)
    assert traced(program).module()({"x": torch.ones(1, 3)})["y"].unique().tolist() == [34]


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_shared_module_is_replaced_under_both_names(name: str) -> None:
    module, new = TwoNames(), Weighted()
    program = EditableProgram(traced(module, preserved=("a", "b")))
    assert swap_module(program, name, new) == ("a", "b", "a@1")
    module.a = module.b = new
    assert_same(module, program)
    again = traced(program)
    assert_same(module, again.module())
    assert all(key.startswith(f"{name}.") for key in again.state_dict)


def test_repeats_within_repeats_are_replaced_at_once() -> None:
    module, new = Nested(), Weighted()
    program = EditableProgram(traced(module, preserved=("p.n",)))
    assert len(swap_module(program, "p.n", new)) == 6
    module.p.n = new
    assert_same(module, traced(program).module())


def test_without_a_preserved_signature_tensors_are_given_by_first_use() -> None:
    module, new = Nested(), nn.Linear(3, 3)
    program = EditableProgram(traced(module))
    swap_module(program, "p.n.linear", new)
    module.p.n.linear = new
    again = traced(program)
    assert_same(module, again.module())
    assert set(again.state_dict) == {"p.n.weight", "p.n.linear.weight", "p.n.linear.bias"}


def test_the_program_it_was_made_of_stays_as_it_is() -> None:
    module = Nested()
    program = traced(module)
    edited = EditableProgram(program)
    swap_attribute(edited, "p.n.weight", torch.zeros_like)
    swap_module(edited, "p.n.linear", nn.Linear(3, 3))
    assert_same(module, program.module())


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (nn.Linear(3, 4), "returns float32 .s.*, 4. where p.n.linear returns float32 .s.*, 3."),
        (nn.Bilinear(3, 3, 3), "does not take the 1 arguments of p.n.linear"),
        (nn.Linear(5, 3), "cannot run in the place of p.n.linear"),
        (nn.Linear(3, 3).double(), "returns float64"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_module_that_does_not_fit_is_refused_and_nothing_changed(new: nn.Module, said: str) -> None:
    module = Nested()
    program = EditableProgram(traced(module))
    with pytest.raises(PassRefused, match=said):
        swap_module(program, "p.n.linear", new)
    assert_same(module, program)


def test_an_unknown_variant_is_refused() -> None:
    program = EditableProgram(traced(TrueThenFalse()))
    with pytest.raises(PassRefused, match="has no variant n@7"):
        swap_module(program, "n", nn.Identity(), only=["n@7"])


def test_no_variant_at_all_is_refused() -> None:
    program = EditableProgram(traced(TrueThenFalse()))
    with pytest.raises(PassRefused, match="no variant of n is chosen"):
        swap_module(program, "n", nn.Identity(), only=[])


class Times(nn.Module):
    """Multiplies by its weight, or adds it."""

    def __init__(self, weight: float, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), float(weight)))
        if bias:
            self.bias = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, first: bool = True) -> Tensor:
        y = x * self.weight if first else x + self.weight
        return y + self.bias if hasattr(self, "bias") else y


class Shares(nn.Module):
    """What `n` computes goes to its other variant, to a module that ties its weight, or to that weight."""

    def __init__(self, with_whom: str) -> None:
        super().__init__()
        self.o, self.n = Times(1, bias=True), Times(100)
        if with_whom == "tied":
            self.o.weight = self.n.weight
        self.with_whom = with_whom

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = self.n(inputs["x"], TRUE)
        if self.with_whom == "variant":
            return {"y": self.n(y + 4, FALSE)}
        return {"y": self.o(y) if self.with_whom == "tied" else y * self.n.weight}


class Plus(nn.Module):
    """Without a weight."""

    def forward(self, x: Tensor, first: bool = True) -> Tensor:
        return x + 6


@pytest.mark.parametrize("new", [Times(7), Plus()], ids=["weight", "none"])
@pytest.mark.parametrize(("with_whom", "y"), [("variant", 111), ("tied", 701), ("parent", 700)])
def test_what_else_reads_the_old_weights_goes_on_reading_them(with_whom: str, y: int, new: nn.Module) -> None:
    program = EditableProgram(traced(Shares(with_whom), preserved=("n", "o")))
    assert swap_module(program, "n", new, only=["n"]) == ("n",)
    assert program({"x": torch.ones(2, 3)})["y"].unique().tolist() == [y]
    again = EditableProgram(traced(program))
    assert again({"x": torch.ones(1, 3)})["y"].unique().tolist() == [y]
    swap_module(again, "n", nn.Identity(), only=["n"])
    left = {"variant": 105, "tied": 101, "parent": 100}[with_whom]
    assert traced(again).module()({"x": torch.ones(9, 3)})["y"].unique().tolist() == [left]


@pytest.mark.parametrize("name", ["a.weight", "b.weight"])
def test_an_attribute_changes_once_and_stays_shared(name: str) -> None:
    module = TwoNames()
    changed = copy.deepcopy(module)
    with torch.no_grad():
        changed.a.weight.mul_(2)
    program = EditableProgram(traced(module))
    assert set(swap_attribute(program, name, lambda weight: weight * 2)) == {"a.weight", "b.weight"}
    again = traced(program)
    assert_same(changed, again.module())
    assert again.state_dict["a.weight"] is again.state_dict["b.weight"]


def test_an_attribute_of_another_dtype_reaches_every_variant() -> None:
    program = EditableProgram(traced(Nested()))
    swap_attribute(program, "p.n.weight", lambda weight: weight.bfloat16())
    read = [node for node in program.graph.nodes if node.op == "get_attr" and node.target == "p.n.weight"]
    assert len(read) == 1
    assert traced(program).state_dict["p.n.weight"].dtype is torch.bfloat16


def test_an_unknown_attribute_is_refused() -> None:
    with pytest.raises(PassRefused, match="no parameter or buffer p.n.bias"):
        swap_attribute(EditableProgram(traced(Nested())), "p.n.bias", torch.zeros_like)


def test_a_submodule_can_be_swapped_twice() -> None:
    program = EditableProgram(traced(TrueThenFalse(), preserved=("n",)))
    swap_module(program, "n", AddsMore())
    again = EditableProgram(traced(program))
    assert again({"x": torch.ones(1, 3)})["y"].unique().tolist() == [43]
    swap_module(again, "n", nn.Identity(), only=[variants(again, "n")[0].name])
    assert again({"x": torch.ones(1, 3)})["y"].unique().tolist() == [33]


@pytest.mark.slow
def test_an_edited_program_compiles_and_serves_every_size(tmp_path: Path) -> None:
    module, new = TwoNames(), Weighted()
    program = EditableProgram(traced(module, preserved=("a", "b")))
    swap_module(program, "a", new)
    module.a = module.b = new
    assert_same(module, Package(compile_package(traced(program), tmp_path / "aoti_model.pt2")))
