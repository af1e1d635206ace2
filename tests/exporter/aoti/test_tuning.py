"""Kernels for a GPU are tuned on the weights that lie there, and on copies of none of them."""

from types import SimpleNamespace
from typing import Any

import torch
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode

from exporter.aoti.tuning import tune_on_weights


def graph_being_written() -> Any:
    return SimpleNamespace(
        autotuning_inputs=None,
        dynamo_flat_name_to_original_fqn={},
        allocated_constant_name={"table_weight": "table.weight", "head_weight": "head.weight"},
    )


WRAPPER = SimpleNamespace(get_autotuning_input_name="input_{}".format)


def example_of(arg: str | int) -> str:
    """What inductor's own way of tuning calls a kernel with, for an argument of this name."""
    kind = torch.float32 if isinstance(arg, str) else int
    return str(PythonWrapperCodegen.generate_example_arg_value(WRAPPER, arg, kind))  # type: ignore[arg-type]  # of a wrapper it is asked for names


def test_a_weight_on_the_gpu_is_given_itself() -> None:
    graph = graph_being_written()
    with FakeTensorMode(), V.set_graph_handler(graph):
        head, table = torch.empty(4, 4, device="cuda"), torch.empty(1 << 30, 64, device="cuda")
        with tune_on_weights({"table.weight": table, "head.weight": head}):
            assert [example_of("head_weight"), example_of("table_weight")] == ["input_0", "input_1"]
        given = [each.untyped_storage()._cdata for each in graph.autotuning_inputs]
    assert given == [head.untyped_storage()._cdata, table.untyped_storage()._cdata]


def test_what_is_no_weight_is_made_up_as_before() -> None:
    graph, before = graph_being_written(), PythonWrapperCodegen.generate_example_arg_value
    with V.set_graph_handler(graph):
        with tune_on_weights({"table.weight": torch.empty(2)}):
            assert example_of(7) == "7"
        assert graph.autotuning_inputs is None
    assert PythonWrapperCodegen.generate_example_arg_value is before
