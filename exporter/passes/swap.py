"""Replace a submodule or a weight of a program, in all calls at once."""

from collections.abc import Callable, Sequence
from itertools import count
from operator import getitem

import torch
from torch import Tensor, nn
from torch.fx import Node, map_arg

from exporter.errors import PassRefused
from exporter.passes.editable import EditableProgram, similar_names
from exporter.passes.interface import Interface, interface_of, require_fit
from exporter.passes.variants import SubmoduleCall, in_calling_order, variants, weights_below


def swap_module(
    program: EditableProgram, name: str, new: nn.Module, *, only: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Call `new` wherever the program calls `name`, or only in the variants named in `only`.

    If tracing preserved the submodule's call signature, `new` is called as the old module was, including
    arguments that are no tensors; otherwise with the tensors that flow in, in the order of their first use.
    It must return tensors of the same sizes and dtypes. It gets the old module's name, or a new one if
    anything else still reads the old weights. Returns the names of the changed calls.

    Raises:
        PassRefused: no submodule of that name is called, no variant is chosen, or `new` does not fit.
    """
    found = variants(program, name)
    chosen = [variant for variant in found if only is None or variant.name in only]
    if unknown := sorted(set(only or ()) - {variant.name for variant in found}):
        raise PassRefused(
            f"{name} has no variant {', '.join(unknown)}",
            hint=f"it has {', '.join(variant.name for variant in found)}",
            where=name,
        )
    if not chosen:
        raise PassRefused(f"no variant of {name} is chosen", hint="leave `only` out for all", where=name)
    affected = in_calling_order(program, chosen)
    interfaces = [interface_of(program, call) for call in affected]
    for call, interface in zip(affected, interfaces, strict=True):
        require_fit(call, interface, new)
    made = [
        _replace(program, call, interface, name) for call, interface in zip(affected, interfaces, strict=True)
    ]
    _drop_unread(program, found[0].names)
    target = _place(program, name, name if len(chosen) == len(found) else chosen[0].name, made)
    for node in made:
        node.target = target
    program.set_submodule(target, new)
    program.graph.lint()
    return tuple(call.name for call in affected)


def swap_attribute(
    program: EditableProgram, name: str, change: Callable[[Tensor], Tensor]
) -> tuple[str, ...]:
    """Replace a parameter or buffer by the result of `change`, under all names that share it.

    All variants of a module read one tensor, as do modules with tied weights, and they go on sharing it.
    Returns the tensor's names.

    Raises:
        PassRefused: the program has no such parameter or buffer.
    """
    tensors = program.tensors()
    if name not in tensors:
        raise PassRefused(
            f"the program has no parameter or buffer {name}",
            hint=f"it has {similar_names(name, list(tensors))}",
            where=name,
        )
    old = tensors[name]
    with torch.no_grad():
        changed = change(old.detach())
    new = nn.Parameter(changed, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else changed
    names = tuple(other for other, tensor in tensors.items() if tensor is old)
    for each in names:
        owner, _, attribute = each.rpartition(".")
        setattr(program.get_submodule(owner), attribute, new)
    return names


def _replace(program: EditableProgram, call: SubmoduleCall, interface: Interface, target: str) -> Node:
    """Replace the call's nodes by a call of `target`, and make their users read its results."""
    graph, members = program.graph, frozenset(call.nodes)
    now = program.nodes_named()

    def current(node: Node) -> Node:
        return node if node in members else now[node.name]

    args = tuple(map_arg(arg, current) for arg in interface.args)
    kwargs = {name: map_arg(arg, current) for name, arg in interface.kwargs.items()}
    last = call.nodes[-1]
    with graph.inserting_after(last):
        made = last = graph.call_module(target, args, kwargs)
    made.meta["nn_module_stack"] = call.nodes[0].meta.get("nn_module_stack")
    moved: dict[Node, Node] = {}
    for old, path in interface.results.items():
        new = made
        for step in path:
            with graph.inserting_after(last):
                new = last = graph.call_function(getitem, (new, step))
        moved[old] = new
    for old in interface.sizes:  # recomputed from the new results
        with graph.inserting_after(last):
            moved[old] = last = graph.node_copy(old, moved.__getitem__)
    for old, new in moved.items():
        program.replace(old, new, readers_in=members)
    for node in reversed(call.nodes):
        graph.erase_node(node)
    return made


def _place(program: EditableProgram, name: str, wanted: str, made: Sequence[Node]) -> str:
    """Return the name for a new module: `wanted`, or an unused one beside `name` if other nodes than those in
    `made` still read the module called `wanted`.
    """
    read = [
        f"{node.target}."
        for node in program.graph.nodes
        if node.op in {"get_attr", "call_module"} and node not in made
    ]
    owner, _, attribute = name.rpartition(".")
    beside = (f"{attribute}_{number}" for number in count(1))
    unused = next(each for each in beside if not hasattr(program.get_submodule(owner), each))
    taken = any(each.startswith(f"{wanted}.") for each in read)
    return f"{owner}.{unused}".removeprefix(".") if taken else wanted


def _drop_unread(program: EditableProgram, names: Sequence[str]) -> None:
    """Delete the weights of these modules that nothing reads any more."""
    for node in list(program.graph.nodes):
        if node.op == "get_attr" and not node.users:
            program.graph.erase_node(node)
    tensors = program.tensors()
    read = {id(tensors.get(str(node.target))) for node in program.graph.nodes if node.op == "get_attr"}
    for key, tensor in (
        (key, tensor) for name in names for key, tensor in weights_below(program, name).items()
    ):
        if id(tensor) not in read:
            owner, _, attribute = key.rpartition(".")
            delattr(program.get_submodule(owner), attribute)
