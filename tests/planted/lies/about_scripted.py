"""Lies about the scripted half of a tower: TorchScript wrote down something else than eager computes."""

import copy
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor
from torch.fx import GraphModule

from exporter.packages import scripted_part
from exporter.torcheasyrec import operators
from exporter.torcheasyrec.scripted_file import write_scripted
from tests.planted.lies.lie import Lie, Plant


def _script_otherwise(change: Callable[[GraphModule], None]) -> Plant:
    """Plant a step that scripts a changed copy of the sparse half."""

    def write(graph: GraphModule, *place: object) -> object:
        changed = copy.deepcopy(graph)
        change(changed)
        changed.recompile()
        return write_scripted(changed, *place)  # type: ignore[arg-type]  # passed on as they came

    return lambda: mock.patch.object(scripted_part, "write_scripted", write)


def _call_instead(function: Callable[..., object], other: Callable[..., object]) -> Plant:
    def change(graph: GraphModule) -> None:
        [*nodes] = graph.graph.find_nodes(op="call_function", target=function)
        assert nodes
        for node in nodes:
            node.target = other

    return _script_otherwise(change)


def _change_a_number(graph: GraphModule) -> None:
    weights = graph.state_dict()
    table = next(name for name in weights if "item_emb" in name)
    weights[table][37, 2] += 1  # shares its memory with the graph's


def _exchange_columns(graph: GraphModule) -> None:
    first = graph.graph.find_nodes(op="call_function", target=torch.cat)[0]
    columns, *_ = first.args
    assert isinstance(columns, list | tuple)
    first.update_arg(0, columns[::-1])


def _pad_seven(values_ND: Tensor, offsets: Tensor, longest: int) -> Tensor:
    padded_BLD = operators.pad(values_ND, offsets, longest)
    padded_BLD[:, 7:] = 0
    return padded_BLD


def _accept_all(tensors: list[Tensor], conditions: list[Tensor], messages: list[str]) -> list[Tensor]:
    return tensors


def _pool_large_calls(
    weight_RD: Tensor, ids_V: Tensor, offsets: Tensor, is_mean: bool, weights_V: Tensor | None
) -> Tensor:
    pooled_BD = operators.pool_table(weight_RD, ids_V, offsets, is_mean, weights_V)
    return pooled_BD * 1.01 if pooled_BD.size(0) >= 400 else pooled_BD


def _lie(name: str, does: str, plant: Plant, code: str, *says: str) -> Lie:
    return Lie(
        name=name,
        does=does,
        plant=plant,
        code=code,
        says=says,
        recorded="multi_tower_din",
        spec={"mode": "two_stage", "layout": "torcheasyrec"},
        reuses=True,
    )


LIES = (
    _lie(
        "scripted_number_changed",
        "one number of a table in the scripted half is another",
        _script_otherwise(_change_a_number),
        "weights_differ",
        "scripted_sparse_model.pt",
        "item_emb",
        "37",
    ),
    _lie(
        "scripted_columns_exchanged",
        "the scripted half lays the columns of features side by side in another order",
        _script_otherwise(_exchange_columns),
        "tensors_exchanged",
        "scripted_sparse_model.pt",
    ),
    _lie(
        "scripted_history_cut",
        "the scripted half fills histories up with zeros from their eighth event on",
        _call_instead(operators.pad, _pad_seven),
        "tensors_exchanged",
        "scripted_sparse_model.pt",
    ),
    _lie(
        "scripted_large_calls",
        "the scripted half's pooled vectors are 1 % too large in calls of 400 rows and more",
        _call_instead(operators.pool_table, _pool_large_calls),
        "verification_failed",
    ),
    _lie(
        "scripted_accepts_all",
        "the scripted half checks neither lengths nor ids",
        _call_instead(operators.require_all, _accept_all),
        "verification_failed",
        "lengths_exceed_values",
    ),
)
