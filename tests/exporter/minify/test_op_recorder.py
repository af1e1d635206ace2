"""What a module calls, as a graph whose sizes follow its inputs."""

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Graph

from exporter.minify import memory_budget
from exporter.minify.op_recorder import DYNAMIC_AXES, record_operators

FEW, MORE = {"x": torch.rand(3, 4)}, {"x": torch.rand(5, 4)}


class Folded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = self.linear(inputs["x"])
        return {"y": x.view(x.shape[0] * 4).view(x.shape[0] + x.shape[0], 2)}


def names(graph: Graph) -> list[str]:
    return [str(node.target).rpartition("aten.")[2] for node in graph.nodes if node.op == "call_function"]


def test_the_graph_computes_what_the_module_does_also_at_other_sizes() -> None:
    module = Folded()
    graph, taken = record_operators(module, FEW, MORE)
    assert torch.equal(graph(*taken)[0], module(FEW)["y"])
    [place] = [place for place, each in enumerate(taken) if torch.equal(each, FEW["x"])]
    taken[place] = MORE["x"]
    assert torch.equal(graph(*taken)[0], module(MORE)["y"])


def test_what_differs_between_the_two_inputs_is_dynamic_and_nothing_else() -> None:
    graph, _ = record_operators(Folded(), FEW, MORE)
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    assert {tuple(node.meta["val"].shape): node.meta[DYNAMIC_AXES] for node in placeholders} == {
        (3, 4): [0],
        (4, 4): [],
        (4,): [],
    }


class Raises(nn.Module):
    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": inputs["x"].exp() @ torch.ones(7, 1)}


def test_the_call_that_raises_is_the_last_one() -> None:
    graph, _ = record_operators(Raises(), FEW, MORE)
    assert names(graph.graph)[-1] == "mm.default"


class Branches(nn.Module):
    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        return {"y": x + 1 if x.sum() > 0 else x}


def test_a_branch_on_a_value_is_part_of_the_graph() -> None:
    graph, _ = record_operators(Branches(), FEW, MORE)
    assert "<built-in function truth>" in [str(node.target) for node in graph.graph.nodes]


class Counts(nn.Module):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.table = nn.Embedding(9, 4)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": self.seen.add_(inputs["x"].sum()) + self.table.weight[0]}


def test_only_what_a_call_overwrites_is_copied() -> None:
    module = Counts()
    _, taken = record_operators(module, FEW, MORE)
    assert module.table.weight.data_ptr() in {each.data_ptr() for each in taken}
    assert any(torch.equal(each, torch.zeros(4)) for each in taken) and module.seen.min() > 0


def test_a_recording_that_takes_too_much_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "LIMIT_BYTES", 20)
    with pytest.raises(memory_budget.MemoryBudgetExceeded, match="No smaller case was searched for"):
        record_operators(Folded(), FEW, MORE)
