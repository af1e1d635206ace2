"""The comparison itself is planted with a wrong size, stride, dtype and device, and must see each."""

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule, Node

from exporter.errors import OutOfMemory
from exporter.verify.nodes import CheckedProgram, check_nodes, find_broken_promise
from tests.exporter.models.recorded import random_inputs, recorded_tower
from tests.exporter.verify.conftest import Greedy, clicks


class Transposed(nn.Module):
    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        turned = (x * 2).t()
        return {"y": turned + 1, "kept": x[x.sum(1) > 0]}


def traced() -> ExportedProgram:
    rows = Dim("rows", min=1, max=64)
    return torch.export.export(
        Transposed(), ({"x": torch.rand(5, 3)},), dynamic_shapes=({"x": {0: rows}},), strict=False
    )


def promise(node: Node, change: Callable[[Tensor], Tensor]) -> None:
    node.meta["val"] = change(node.meta["val"])


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_a_sound_program_keeps_its_promises_at_sizes_never_traced(rows: int) -> None:
    assert check_nodes(traced(), {"x": torch.rand(rows, 3)}) is None


def test_memory_that_runs_out_breaks_no_promise() -> None:
    program = torch.export.export(
        Greedy(seed=0).eval(),
        (clicks(3, 0, 4),),
        dynamic_shapes=({name: {0: Dim.AUTO} for name in clicks(1)},),
        strict=False,
    )
    with pytest.raises(OutOfMemory, match="DefaultCPUAllocator"):
        check_nodes(program, clicks(*[1] * 64))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda val: val.contiguous(), r"stride is \(1, 3\), promised \(9, 1\)"),
        (lambda val: val[:, 1:], r"size is \(3, 9\), promised \(3, 8\)"),
        (lambda val: val.double(), "dtype is torch.float32, promised torch.float64"),
        (lambda val: val.to("meta"), "device is cpu, promised meta"),
        (lambda val: val[0], "has 2 axes, promised 1"),
    ],
    ids=["stride", "size", "dtype", "device", "axes"],
)
def test_a_wrong_promise_is_caught_at_its_node(change: Callable[[Tensor], Tensor], said: str) -> None:
    program = traced()
    [node] = [node for node in program.graph.nodes if "aten.t." in str(node.target) or node.name == "t"]
    promise(node, change)
    broken = check_nodes(program, {"x": torch.rand(9, 3)})
    assert broken is not None
    assert broken.node == node.name
    assert "exporter/verify/test_nodes.py:" in broken.place
    assert re.search(said, str(find_broken_promise([CheckedProgram(program)], {"x": torch.rand(9, 3)})))


def test_a_promise_that_holds_only_at_the_traced_size_is_caught_elsewhere() -> None:
    program = traced()
    [node] = [node for node in program.graph.nodes if node.name == "mul"]
    node.meta["val"] = torch.empty(5, 3)
    assert check_nodes(program, {"x": torch.rand(5, 3)}) is None
    broken = check_nodes(program, {"x": torch.rand(6, 3)})
    assert broken is not None
    assert broken.differs == "size is (6, 3), promised (5, 3)"


def test_a_size_that_was_built_in_is_a_broken_promise_of_its_node() -> None:
    program = traced()
    [node] = [node for node in program.graph.nodes if node.name == "mul"]
    with program.graph.inserting_after(node):
        fixed = program.graph.call_function(torch.ops.aten.view.default, (node, [15]))
    broken = find_broken_promise([CheckedProgram(program)], {"x": torch.rand(9, 3)})
    assert f"node {fixed.name} = aten.view.default: raises RuntimeError: " in str(broken)


def test_a_value_more_than_was_promised_is_caught() -> None:
    program = traced()
    [node] = [node for node in program.graph.nodes if node.name == "mul"]
    node.meta["val"] = (node.meta["val"], node.meta["val"])
    broken = check_nodes(program, {"x": torch.rand(9, 3)})
    assert broken is not None and broken.differs == "gives 1 values, promised 2"


@pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning")
@pytest.mark.parametrize("history", [[5, 0, 3], [0], [1], [40] * 9], ids=str)
def test_a_recorded_tower_keeps_its_promises(history: list[int], user_program: ExportedProgram) -> None:
    tower = recorded_tower("hstu_match", "user")
    assert check_nodes(user_program, random_inputs(tower, history)) is None


class UnderAutocast(Transposed):
    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return {"product": inputs["x"].t() @ inputs["x"]}


def under_autocast() -> ExportedProgram:
    rows = Dim("rows", min=1, max=64)
    dims = ({"x": {0: rows}},)
    return torch.export.export(UnderAutocast(), ({"x": torch.rand(5, 3)},), dynamic_shapes=dims, strict=False)


def test_what_is_computed_under_autocast_is_checked_node_by_node() -> None:
    program = under_autocast()
    assert check_nodes(program, {"x": torch.rand(9, 3)}) is None
    [inner] = [module for name, module in program.graph_module.named_children() if "submod" in name]
    assert isinstance(inner, GraphModule)
    [node] = [node for node in inner.graph.nodes if "matmul" in str(node.target)]
    promise(node, lambda val: val.float())
    broken = check_nodes(program, {"x": torch.rand(9, 3)})
    assert broken is not None
    assert (broken.node, broken.differs) == (node.name, "dtype is torch.bfloat16, promised torch.float32")


def test_results_that_nobody_reads_may_be_anything() -> None:
    class Bags(nn.Module):
        def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            ids, offsets = torch.arange(inputs["x"].shape[0]), torch.tensor([0, 2, 5])
            return {"y": F.embedding_bag(ids, inputs["x"], offsets, mode="sum", include_last_offset=True)}

    program = torch.export.export(Bags(), ({"x": torch.rand(5, 3)},), strict=False)
    assert check_nodes(program, {"x": torch.rand(5, 3)}) is None
