"""The interface of a submodule's call: its arguments and results, and the check that another module fits."""

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
Path = tuple[int | str, ...]  # keys that lead from the result of a call to one tensor in it


@dataclass(frozen=True, kw_only=True, eq=False)
class Interface:
    """The arguments of a call, with nodes for tensors, and the path of each output in its result."""

    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    results: Mapping[Node, Path]
    sizes: tuple[Node, ...]  # sizes of results that nodes outside the call read


def interface_of(program: EditableProgram, call: SubmoduleCall) -> Interface:
    """Return the interface as the model's code calls the submodule, if tracing preserved its signature.

    Otherwise the arguments are the tensors that flow in, in the order of their first use.

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
        args, kwargs, results = _original_call(program, call, signature)
    sizes = tuple(node for node in call.outputs if node not in results)
    for node in sizes:
        if not set(node.all_input_nodes) <= set(results):
            raise PassRefused(
                f"{call.name} passes on {node.name}, which is neither a result nor a size of one",
                hint="swap the module that calls it",
                where=call.place,
            )
    return Interface(args=args, kwargs=kwargs, results=results, sizes=sizes)


def _original_call(
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
    """Require that `new` takes the arguments of a call and returns tensors of the same kinds.

    Raises:
        PassRefused: `new` does not fit; says what differs.
    """
    try:
        inspect.signature(new.forward).bind(*interface.args, **interface.kwargs)
    except TypeError as error:
        raise PassRefused(
            f"{type(new).__name__} does not take the {len(interface.args)} arguments of {call.name}: {error}",
            hint=f"they are {_describe_arguments(interface)}",
            where=call.place,
        ) from error
    returned = _run_on_fakes(call, interface, new)
    for old, path in interface.results.items():
        wanted, given = old.meta["val"], _at(returned, path)
        if _describe(wanted) != _describe(given):
            raise PassRefused(
                f"{type(new).__name__} returns {_describe(given)} where {call.name} returns "
                f"{_describe(wanted)}",
                hint="a swapped module returns tensors of the same sizes and dtypes, in the same order",
                where=call.place,
            )


def _run_on_fakes(call: SubmoduleCall, interface: Interface, new: nn.Module) -> object:
    """Return the result of `new` for fake tensors, whose sizes are the program's symbols."""
    given: Argument = (interface.args, interface.kwargs)
    values = cast(Values, map_arg(given, lambda node: node.meta["val"]))
    modes = [leaf.fake_mode for leaf in tree_flatten(values)[0] if hasattr(leaf, "fake_mode")]
    if not modes:
        return new(*values[0], **values[1])
    try:
        with modes[0], torch.no_grad():
            fakes = {name: modes[0].from_tensor(tensor, static_shapes=True) for name, tensor in _state(new)}
            return functional_call(new, fakes, *values)
    except Exception as error:  # torch raises many unrelated types; each means that `new` does not fit
        raise PassRefused(
            f"{type(new).__name__} cannot run in the place of {call.name}: {type(error).__name__}: "
            f"{str(error).strip()[:500]}",
            hint=f"it is given {_describe_arguments(interface)}",
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


def _describe(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{value.dtype} ({', '.join(str(size) for size in value.shape)})".removeprefix("torch.")


def _describe_arguments(interface: Interface) -> str:
    """Describe the arguments: "q: float32 (s0, 8), True"."""
    named = {**{str(place): arg for place, arg in enumerate(interface.args)}, **interface.kwargs}
    return ", ".join(
        f"{arg.name}: {_describe(arg.meta['val'])}" if isinstance(arg, Node) else repr(arg)
        for arg in named.values()
    )
