"""Find the calls of a submodule in a program, and group those with the same graph.

torch.export traces a submodule once per call: `n`, `n@1`, `n@2`, … share their weights, but may compute
different things, because arguments that are no tensors become constants.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch.fx import Node

from exporter.errors import PassRefused
from exporter.passes.editable import EditableProgram, similar_names
from exporter.trace.source_line import source_line_of

Stack = dict[str, tuple[str, object]]  # key of a call -> the module's name and type


@dataclass(frozen=True, kw_only=True, eq=False)
class SubmoduleCall:
    """One call of a submodule: its traced nodes, the nodes that flow in, and those that flow out."""

    name: str  # as torch counts the calls of one name: "encoder.stu", "encoder.stu@1"
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]  # in the order of their first use, without the module's own weights
    outputs: tuple[Node, ...]
    place: str = ""  # the line of code behind its first node


@dataclass(frozen=True, kw_only=True, eq=False)
class Variant:
    """One graph of a submodule, and the calls that were traced to it."""

    name: str  # name of its first call
    calls: tuple[SubmoduleCall, ...]
    names: tuple[str, ...]  # the requested name of the module, then its aliases


def variants(program: EditableProgram, name: str) -> tuple[Variant, ...]:
    """Return the distinct graphs of the submodule `name` and its aliases, in calling order.

    Raises:
        PassRefused: no such submodule was called.
    """
    names = aliases(program, name)
    found: dict[str, list[SubmoduleCall]] = {}
    for call in calls(program, names):
        found.setdefault(_text(program, call), []).append(call)
    if not found:
        raise PassRefused(
            f"the program has no call of {name}",
            hint=f"it calls {similar_names(name, called_modules(program))}",
            where=name,
        )
    return tuple(Variant(name=alike[0].name, calls=tuple(alike), names=names) for alike in found.values())


def in_calling_order(program: EditableProgram, chosen: Iterable[Variant]) -> list[SubmoduleCall]:
    """Return the calls of several variants, in the order in which the program makes them."""
    places = {node: place for place, node in enumerate(program.graph.nodes)}
    return sorted(
        (call for variant in chosen for call in variant.calls), key=lambda call: places[call.nodes[0]]
    )


def called_modules(program: EditableProgram) -> tuple[str, ...]:
    """Return the names of the submodules that the program calls, outer ones first."""
    names = (path for node in program.graph.nodes for path, _ in _stack(node).values())
    return tuple(dict.fromkeys(name for name in names if name))


def aliases(program: EditableProgram, name: str) -> tuple[str, ...]:
    """Return `name` and all other names of modules that hold the very same weights."""
    own = weights_below(program, name)
    if not own:
        return (name,)
    tensors = program.tensors()
    first, tensor = next(iter(own.items()))
    ending = first.removeprefix(name)
    candidates = [
        other.removesuffix(ending)
        for other, each in tensors.items()
        if each is tensor and other.endswith(ending)
    ]
    return (
        name,
        *(
            other
            for other in candidates
            if other != name
            and all(tensors.get(other + key.removeprefix(name)) is own[key] for key in own)
            and len(weights_below(program, other)) == len(own)
        ),
    )


def weights_below(program: EditableProgram, name: str) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a submodule and its children, by full name."""
    return {key: tensor for key, tensor in program.tensors().items() if key.startswith(f"{name}.")}


def calls(program: EditableProgram, names: Sequence[str]) -> tuple[SubmoduleCall, ...]:
    """Return every call of a module with one of these names, in calling order."""
    inside: dict[str, list[Node]] = {}
    called: dict[str, str] = {}
    for node in program.graph.nodes:
        for key, (path, _) in _stack(node).items():
            if path in names:
                inside.setdefault(key, []).append(node)
                called[key] = path
    counted: dict[str, int] = {}
    made = []
    for key, nodes in inside.items():
        path = called[key]
        number = counted[path] = counted.get(path, -1) + 1
        made.append(_call(program, path if number == 0 else f"{path}@{number}", nodes, names))
    return tuple(made)


def _call(program: EditableProgram, name: str, keyed: list[Node], names: Sequence[str]) -> SubmoduleCall:
    nodes = _without_sizes_from_outside(_with_stackless(program, keyed))
    members = set(nodes)
    taken = (each for node in nodes for each in node.all_input_nodes if each not in members)
    return SubmoduleCall(
        name=name,
        nodes=nodes,
        inputs=tuple(dict.fromkeys(each for each in taken if not _is_own(each, nodes, names))),
        outputs=tuple(node for node in nodes if any(user not in members for user in node.users)),
        place=source_line_of(keyed[0]),
    )


def _with_stackless(program: EditableProgram, keyed: list[Node]) -> list[Node]:
    """Add the nodes between those of the call that tracing left unassigned, if they read one of its nodes."""
    members = set(keyed)
    last = keyed[-1]
    for node in program.graph.nodes:
        if node.op == "call_function" and not _stack(node) and members & set(node.all_input_nodes):
            members.add(node)
        if node is last:
            break
    return [node for node in program.graph.nodes if node in members]


def _without_sizes_from_outside(nodes: list[Node]) -> tuple[Node, ...]:
    """Drop sizes of inputs that nodes outside the call need, too: tracing puts a size at its first use."""
    members = set(nodes)
    for node in nodes:
        is_size = isinstance(node.meta.get("val"), torch.SymInt | torch.SymBool | torch.SymFloat)
        from_outside = not members & set(node.all_input_nodes)
        if is_size and from_outside and any(user not in members for user in node.users):
            members.discard(node)
    return tuple(node for node in nodes if node in members)


def _is_own(node: Node, nodes: Iterable[Node], names: Sequence[str]) -> bool:
    """Return whether a node is a weight of the module itself, or a constant that only this call reads."""
    if node.op != "get_attr":
        return False
    below = any(str(node.target).startswith(f"{name}.") for name in names)
    return below or set(node.users) <= set(nodes)


def _text(program: EditableProgram, call: SubmoduleCall) -> str:
    """Describe the call's graph by a text that is equal for calls that compute the same."""
    words: dict[Node, str] = {node: f"in{n}" for n, node in enumerate(call.inputs)}
    words |= {node: f"v{n}" for n, node in enumerate(call.nodes)}

    def word(node: Node) -> str:
        if node not in words:  # a weight: the same tensor under any of its names
            words[node] = f"weight{id(attrgetter(str(node.target))(program))}"
        return words[node]

    lines = [f"{words[node]}: {_kind(node)}" for node in call.inputs]
    for node in call.nodes:
        args = torch.fx.map_arg(node.args, lambda each: _Word(word(each)))
        kwargs = torch.fx.map_arg(node.kwargs, lambda each: _Word(word(each)))
        lines.append(f"{words[node]} = {node.target}{args}{kwargs}")
    return "\n".join([*lines, *(words[node] for node in call.outputs)])


class _Word(str):
    """A name of a node, shown without quotes, unlike a string argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _kind(node: Node) -> str:
    value = node.meta.get("val")
    return f"{value.dtype} {value.dim()}" if isinstance(value, torch.Tensor) else type(value).__name__


def _stack(node: Node) -> Stack:
    stack: Stack = node.meta.get("nn_module_stack") or {}
    return stack
