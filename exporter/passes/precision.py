"""Compute one submodule of a program in another precision, weights included."""

import torch
from torch import Tensor
from torch.fx import Node

from exporter.errors import PassRefused
from exporter.passes.editable import EditableProgram
from exporter.passes.swap import swap_attribute
from exporter.passes.variants import SubmoduleCall, aliases, calls, variants, weights_below


def set_precision(program: EditableProgram, name: str, dtype: torch.dtype) -> tuple[str, ...]:
    """Compute every call of `name` in `dtype`: inputs are cast, and outputs are cast back.

    Returns the names of the calls.

    Raises:
        PassRefused: no submodule of that name is called, or it shares a weight with another module.
    """
    found = [call for variant in variants(program, name) for call in variant.calls]
    _require_own_weights(program, name, found)
    for key, tensor in _distinct(program, name).items():
        if tensor.is_floating_point():
            swap_attribute(program, key, lambda weight: weight.to(dtype))
    names = aliases(program, name)
    for number in range(len(found)):  # looked up anew each time: one call's output may be another one's input
        _cast(program, calls(program, names)[number], dtype)
    program.graph.lint()
    return tuple(call.name for call in found)


def _distinct(program: EditableProgram, name: str) -> dict[str, Tensor]:
    by_id = {id(tensor): key for key, tensor in weights_below(program, name).items()}
    tensors = program.tensors()
    return {key: tensors[key] for key in by_id.values()}


def _require_own_weights(program: EditableProgram, name: str, found: list[SubmoduleCall]) -> None:
    tensors = program.tensors()
    own = {id(tensor) for tensor in weights_below(program, name).values()}
    inside = {node for call in found for node in call.nodes}
    for node in program.graph.nodes:
        if node.op == "get_attr" and id(tensors.get(str(node.target))) in own:
            outside = next((user for user in node.users if user not in inside), None)
            if outside is not None:
                raise PassRefused(
                    f"{node.target} is read by {outside.name} too, which is no part of {name}",
                    hint="set the precision of a submodule that holds all that shares the weight",
                    where=name,
                )


def _cast(program: EditableProgram, call: SubmoduleCall, dtype: torch.dtype) -> None:
    members = set(call.nodes)
    for node in call.inputs:
        if _is_floating(node) and node.meta["val"].dtype is not dtype:
            computed = node.op not in {"placeholder", "get_attr"}
            insert_at = program.graph.inserting_after if computed else program.graph.inserting_before
            with insert_at(node if computed else call.nodes[0]):
                cast = _to(program, node, dtype, call)
            node.replace_all_uses_with(cast, delete_user_cb=members.__contains__)
    for node in call.outputs:
        if _is_floating(node):
            with program.graph.inserting_after(node):
                cast = _to(program, node, node.meta["val"].dtype, call)
            program.replace(node, cast, readers_in=frozenset(members | {cast}))


def _to(program: EditableProgram, node: Node, dtype: torch.dtype, call: SubmoduleCall) -> Node:
    cast = program.graph.call_function(torch.ops.aten.to.dtype, (node, dtype))
    value = node.meta["val"]
    cast.meta["val"] = value.to(dtype)  # a fake tensor, without values
    cast.meta["nn_module_stack"] = dict(list((call.nodes[0].meta.get("nn_module_stack") or {}).items())[:1])
    return cast


def _is_floating(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_floating_point()
