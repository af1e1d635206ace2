"""Lies of the compiler: it is handed the right graph, and builds another one, or writes other C++ for it.

The graph is changed behind torch's public functions, where every caller of the compiler meets the change:
exports, and the scripts of the search for a smallest case.
"""

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from unittest import mock

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import treespec_loads

from tests.planted.lies.lie import Plant

Outputs = dict[str, Tensor]
Edit = Callable[
    [GraphModule, Sequence[str]], object
]  # the second argument: names of its outputs, if they have any


def edit_graph(edit: Edit) -> Plant:
    """Plant an edit of every graph that is compiled."""

    @contextmanager
    def plant() -> Iterator[None]:
        compile_fx = _import_compiler("compile_fx")
        compile_honestly = compile_fx.compile_fx_aot

        def compile_edited(
            model: GraphModule,
            inputs: Sequence[Tensor],
            config_patches: Mapping[str, object],
            **named: object,
        ) -> object:
            outputs = treespec_loads(str(config_patches["aot_inductor.serialized_out_spec"]))
            edit(model, outputs.context if outputs.type is dict else ())
            model.graph.lint()
            model.recompile()
            return compile_honestly(model, inputs, config_patches=config_patches, **named)

        with mock.patch.object(compile_fx, "compile_fx_aot", compile_edited):
            yield

    return plant


def replace_operator(
    operator: Callable[..., object], instead: Callable[..., object], *, calls: slice = slice(None)
) -> Plant:
    """Plant another function in the place of an operator, in some of its calls in a graph or in all."""

    def edit(model: GraphModule, outputs: Sequence[str]) -> None:
        for node in model.graph.find_nodes(op="call_function", target=operator)[calls]:
            node.target = instead

    return edit_graph(edit)


def change_results(
    operator: Callable[..., Tensor], change: Callable[[Tensor], object], *, calls: slice = slice(None)
) -> Plant:
    """Plant a change of an operator's results."""

    def call_and_change(*given: object, **named: object) -> object:
        return change(operator(*given, **named))

    return replace_operator(operator, call_and_change, calls=calls)


def change_output(name: str, change: Callable[..., object], *reads: str) -> Plant:
    """Plant a change of one output of the program, by a function of it and of the inputs in `reads`."""

    def edit(model: GraphModule, outputs: Sequence[str]) -> None:
        if name not in outputs:
            return
        [end] = model.graph.find_nodes(op="output")
        nodes, place = list(end.args[0]), outputs.index(name)
        taken = [_find_input(model, each) for each in reads]
        with model.graph.inserting_before(end):
            nodes[place] = model.graph.call_function(change, (nodes[place], *taken))
        end.args = (tuple(nodes),)

    return edit_graph(edit)


def swap_outputs(first: str, second: str) -> Plant:
    """Plant two outputs in each other's place."""

    def edit(model: GraphModule, outputs: Sequence[str]) -> None:
        if not {first, second} <= {*outputs}:
            return
        [end] = model.graph.find_nodes(op="output")
        nodes, here, there = list(end.args[0]), outputs.index(first), outputs.index(second)
        nodes[here], nodes[there] = nodes[there], nodes[here]
        end.args = (tuple(nodes),)

    return edit_graph(edit)


def swap_inputs(first: str, second: str) -> Plant:
    """Plant two inputs in each other's place."""

    def edit(model: GraphModule, outputs: Sequence[str]) -> None:
        one, other = _find_input(model, first), _find_input(model, second)
        if one is None or other is None:
            return
        readers = list(one.users)
        other.replace_all_uses_with(one)
        for reader in readers:
            reader.replace_input_with(one, other)

    return edit_graph(edit)


def swap_tables() -> Plant:
    """Plant two tables of one shape in each other's place, where the graph looks up rows in two."""

    def edit(model: GraphModule, outputs: Sequence[str]) -> None:
        lookups = model.graph.find_nodes(op="call_function", target=torch.ops.aten.embedding.default)
        if len(lookups) == 2:
            (first, *ids), (second, *other_ids) = (node.args for node in lookups)
            lookups[0].args, lookups[1].args = (second, *ids), (first, *other_ids)

    return edit_graph(edit)


def edit_source(edit_wrapper: Callable[[str], str], edit_kernels: Callable[[str], str] = str) -> Plant:
    """Plant an edit of the C++ that the compiler has written, before it is built.

    An edit that changes nothing fails, so that a lie cannot go untold.
    """

    @contextmanager
    def plant() -> Iterator[None]:
        codecache = _import_compiler("codecache")
        build_honestly = codecache.AotCodeCompiler.compile

        def build_edited(
            graph: object, wrapper: str, kernels: str, *given: object, **named: object
        ) -> object:
            edited = edit_wrapper(wrapper), edit_kernels(kernels)
            assert edited != (wrapper, kernels), "the lie found nothing to change in the source"
            return build_honestly(graph, *edited, *given, **named)

        with mock.patch.object(codecache.AotCodeCompiler, "compile", build_edited):
            yield

    return plant


def _import_compiler(module: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        return importlib.import_module(f"torch._inductor.{module}")


def _find_input(model: GraphModule, name: str) -> Node | None:
    """Return the placeholder of an input by its name in the request, if the graph is of the whole program."""
    placeholders = model.graph.find_nodes(op="placeholder")
    found = [node for node in placeholders if node.name == f"inputs_{name}".replace(".", "_")]
    return found[0] if found else None


def lying_where(wrong: Callable[[Tensor], Tensor], by: float = 1.01) -> Callable[[Tensor], Tensor]:
    """Return a change of results: multiplied by `by` where `wrong`, of the numbers of the rows, holds."""

    def change(values: Tensor) -> Tensor:
        rows = torch.arange(values.shape[0]).reshape(-1, *[1] * (values.dim() - 1))
        return torch.where(wrong(rows), values * by, values)

    return change
