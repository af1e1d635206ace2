"""How a call of a submodule is made and what it returns; whether another module fits in its place."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.export import ModuleCallSignature
from torch.export.graph_signature import ConstantArgument
from torch.func import functional_call
from torch.fx import Node, map_arg
from torch.fx.node import Argument
from torch.utils._pytree import MappingKey, SequenceKey, tree_flatten, tree_flatten_with_path, tree_unflatten

from exporter.errors import PassRefused
from exporter.passes.editable import EditableProgram
from exporter.passes.variants import SubmoduleCall

Values = tuple[tuple[object, ...], dict[str, object]]
Path = tuple[int | str, ...]  # from what a call returns to one tensor of it


@dataclass(frozen=True, kw_only=True, eq=False)
class Interface:
    """The arguments of a call, nodes where tensors flow in, and where in its result each output stands."""

    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    results: Mapping[Node, Path]
    sizes: tuple[Node, ...]  # of results, that others read


def interface_of(program: EditableProgram, call: SubmoduleCall) -> Interface:
    """As the model's code called the submodule if tracing preserved that; else tensors by first use.

    Raises:
        PassRefused: the call cannot be made anew.
    """
    tensors = [node for node in call.outputs if isinstance(node.meta.get("val"), Tensor)]
    signature = program.signatures.get(call.name)
    if signature is None:
        args: tuple[Argument, ...] = call.inputs
        kwargs: dict[str, Argument] = {}
        results: dict[Node, Path] = {
            node: () if len(tensors) == 1 else (place,) for place, node in enumerate(tensors)
        }
    else:
        args, kwargs, results = _preserved(program, call, signature)
    sizes = tuple(node for node in call.outputs if node not in results)
    for node in sizes:
        if not set(node.all_input_nodes) <= set(results):
            raise PassRefused(
                f"{call.name} gives {node.name} to others, which is neither returned nor a size of what is",
                hint="swap the module that calls it",
                where=call.place,
            )
    return Interface(args=args, kwargs=kwargs, results=results, sizes=sizes)


def _preserved(
    program: EditableProgram, call: SubmoduleCall, signature: ModuleCallSignature
) -> tuple[tuple[Argument, ...], dict[str, Argument], dict[Node, Path]]:
    nodes = program.nodes_named()

    def value(argument: object) -> object:
        if isinstance(argument, ConstantArgument):
            return argument.value
        name = getattr(argument, "name", "")
        if name not in nodes:
            raise PassRefused(
                f"{call.name} takes {name}, which an earlier edit has replaced",
                hint="edit the submodules of a program in their calling order, outermost first",
                where=call.place,
            )
        return nodes[name]

    args, kwargs = tree_unflatten([value(each) for each in signature.inputs], signature.in_spec)
    places = tree_unflatten(list(range(len(signature.outputs))), signature.out_spec)
    results = {
        nodes[each.name]: tuple(_step(key) for key in path)
        for (path, _), each in zip(tree_flatten_with_path(places)[0], signature.outputs, strict=True)
        if not isinstance(each, ConstantArgument)
    }
    return args, kwargs, results


def _step(key: object) -> int | str:
    if isinstance(key, SequenceKey):
        return key.idx
    if isinstance(key, MappingKey):
        return str(key.key)
    raise PassRefused(f"a module that returns {type(key).__name__} cannot be swapped")


def require_fit(call: SubmoduleCall, interface: Interface, new: nn.Module) -> None:
    """Hold `new` against a call: it takes its arguments, and returns tensors like those it returned.

    Raises:
        PassRefused: saying what differs.
    """
    try:
        inspect.signature(new.forward).bind(*interface.args, **interface.kwargs)
    except TypeError as error:
        raise PassRefused(
            f"{type(new).__name__} does not take the {len(interface.args)} arguments of {call.name}: {error}",
            hint=f"they are {_listed(interface)}",
            where=call.place,
        ) from error
    returned = _tried(call, interface, new)
    for old, path in interface.results.items():
        wanted, given = old.meta["val"], _at(returned, path)
        if _described(wanted) != _described(given):
            raise PassRefused(
                f"{type(new).__name__} returns {_described(given)} where {call.name} returns "
                f"{_described(wanted)}",
                hint="a swapped module returns tensors of the same sizes and dtypes, in the same order",
                where=call.place,
            )


def _tried(call: SubmoduleCall, interface: Interface, new: nn.Module) -> object:
    """What `new` returns for tensors without values, whose sizes are the program's symbols."""
    given: Argument = (interface.args, interface.kwargs)
    values = cast(Values, map_arg(given, lambda node: node.meta["val"]))
    modes = [leaf.fake_mode for leaf in tree_flatten(values)[0] if hasattr(leaf, "fake_mode")]
    if not modes:
        return new(*values[0], **values[1])
    try:
        with modes[0], torch.no_grad():
            fakes = {name: modes[0].from_tensor(tensor, static_shapes=True) for name, tensor in _state(new)}
            return functional_call(new, fakes, *values)
    except Exception as error:  # torch raises many unrelated types; each means that it does not fit
        raise PassRefused(
            f"{type(new).__name__} cannot run in the place of {call.name}: {type(error).__name__}: "
            f"{str(error).strip()[:500]}",
            hint=f"it is given {_listed(interface)}",
            where=call.place,
        ) from error


def _state(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _at(returned: object, path: Path) -> object:
    for step in path:
        if not isinstance(returned, tuple | list | dict):
            return returned
        try:
            returned = returned[step]  # type: ignore[index]  # int or str, as the container asks
        except (IndexError, KeyError):
            return None
    return returned


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{value.dtype} ({', '.join(str(size) for size in value.shape)})".removeprefix("torch.")


def _listed(interface: Interface) -> str:
    """The arguments in words: "q: float32 (s0, 8), True"."""
    named = {**{str(place): arg for place, arg in enumerate(interface.args)}, **interface.kwargs}
    return ", ".join(
        f"{arg.name}: {_described(arg.meta['val'])}" if isinstance(arg, Node) else repr(arg)
        for arg in named.values()
    )
