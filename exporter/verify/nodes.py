"""Running a program node by node, and holding each result against the metadata that tracing promised.

Compiled code trusts these promises: with a wrong stride it silently reads memory at the wrong places.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import Argument, Target
from torch.utils._pytree import tree_leaves

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.trace.source_line import source_line_of

_UnderAutocast = tuple[str, torch.dtype, bool, bool, nn.Module, *tuple[Tensor, ...]]
Symbols = dict[object, int]  # torch's symbol for a size -> the size in this run


@dataclass(frozen=True, kw_only=True)
class BrokenPromise:
    """The first node of a run that raised, or returned something other than was promised."""

    node: str
    operator: str
    place: str  # the line of the model's code that it was traced from
    differs: str  # "stride is (1, 4), promised (3, 1)"

    def __str__(self) -> str:
        at = f" (from {self.place})" if self.place else ""
        return f"node {self.node} = {self.operator}{at}: {self.differs}"


class CheckedProgram:
    """A program that is run node by node, and can be run again without being prepared again.

    The promises are sizes, strides, dtypes and devices in terms of the input sizes, and so evaluated at
    the sizes of the inputs, which need not be those that the program was traced with.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self._inputs = list(program.call_spec.in_spec.child(0).child(0).context)
        self._program = program

    @cached_property
    def _module(self) -> GraphModule:
        module = self._program.module(check_guards=False)
        assert isinstance(module, GraphModule)
        return module

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor] | BrokenPromise:
        """Run on real tensors; return the outputs, or the first node that raises or breaks a promise."""
        flat = tree_leaves(((dict(inputs),), {}))
        with torch.no_grad():
            try:
                outputs = _CheckedRun(self._module, {}).run(*flat, enable_io_processing=False)
            except _Stop as stop:
                return stop.broken
        return cast(dict[str, Tensor], self._module.graph.process_outputs(outputs))

    def run_on(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | BrokenPromise:
        """Run on those of the tensors that the program takes."""
        return self.run({name: tensors[name] for name in self._inputs})


def check_nodes(program: ExportedProgram, inputs: Mapping[str, Tensor]) -> BrokenPromise | None:
    """Run `program` on real tensors; return the first node that raises or breaks a promise, if one does."""
    result = CheckedProgram(program).run(inputs)
    return result if isinstance(result, BrokenPromise) else None


def find_broken_promise(
    programs: Sequence[CheckedProgram], inputs: Mapping[str, Tensor]
) -> BrokenPromise | None:
    """Check programs, each on the outputs of the one before it, up to the first broken promise."""
    tensors: Mapping[str, Tensor] = inputs
    for program in programs:
        result = program.run_on(tensors)
        if isinstance(result, BrokenPromise):
            return result
        tensors = result
    return None


def describe_difference(promised: object, real: object, symbols: Symbols) -> str:
    """Return how a value differs from its promise, in words; empty if it does not.

    A symbol met for the first time, such as a size that depends on data, takes the value that is found.
    """
    if isinstance(promised, Tensor):
        return _describe_tensor_difference(promised, real, symbols)
    if isinstance(promised, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool):
        expected = _evaluate(promised, symbols, real)
        return "" if expected == real else f"is {real}, promised {expected}"
    return ""


def _describe_tensor_difference(promised: Tensor, real: object, symbols: Symbols) -> str:
    if not isinstance(real, Tensor):
        return f"is a {type(real).__name__}, promised a tensor"
    if real.dtype != promised.dtype:
        return f"dtype is {real.dtype}, promised {promised.dtype}"
    if real.device.type != promised.device.type:
        return f"device is {real.device}, promised {promised.device}"
    if real.dim() != promised.dim():
        return f"has {real.dim()} axes, promised {promised.dim()}"
    return _describe_layout_difference(promised, real, symbols)


def _describe_layout_difference(promised: Tensor, real: Tensor, symbols: Symbols) -> str:
    sizes = tuple(
        _evaluate(each, symbols, found) for each, found in zip(promised.shape, real.shape, strict=True)
    )
    if sizes != tuple(real.shape):
        return f"size is {tuple(real.shape)}, promised {sizes}"
    strides = tuple(
        _evaluate(each, symbols, found) for each, found in zip(promised.stride(), real.stride(), strict=True)
    )
    # Where there is nothing to step to, a stride means nothing.
    steps = [axis for axis, size in enumerate(real.shape) if size > 1 and real.numel() > 0]
    if any(strides[axis] != real.stride(axis) for axis in steps):
        return f"stride is {real.stride()}, promised {strides}"
    return ""


def _evaluate(promised: object, symbols: Symbols, found: object) -> object:
    """Evaluate a promised size in this run: an expression of symbols, or a number as it is."""
    if not isinstance(promised, torch.SymInt | torch.SymFloat | torch.SymBool):
        return promised
    expression = promised.node.expr
    unknown = [symbol for symbol in expression.free_symbols if symbol not in symbols]
    if unknown:
        if expression.is_symbol and isinstance(found, int):
            symbols[expression] = found
        return found  # nothing known contradicts it
    value = expression.xreplace(symbols)
    if isinstance(promised, torch.SymBool):
        return bool(value)
    return float(value) if isinstance(promised, torch.SymFloat) else int(value)


class _Stop(Exception):
    def __init__(self, broken: BrokenPromise) -> None:
        super().__init__(str(broken))
        self.broken = broken


class _CheckedRun(Interpreter):
    """Runs a program's graph, and stops at the first node that breaks its promise."""

    def __init__(self, module: nn.Module, symbols: Symbols) -> None:
        super().__init__(module)
        self._symbols = symbols

    def run_node(self, n: Node) -> object:
        try:
            result: object = super().run_node(n)
        except _Stop:
            raise
        except Exception as error:  # a size that was built in, where the run has another one
            if memory := as_out_of_memory(error):  # which breaks no promise
                raise memory from error
            raise _stop_at(n, f"raises {type(error).__name__}: {str(error).strip()[:500]}") from error
        promised = n.meta.get("val")
        if n.op == "output" or promised is None:
            return result
        if difference := self._describe_difference(
            tree_leaves(_read_results(n, promised)), tree_leaves(_read_results(n, result))
        ):
            raise _stop_at(n, difference)
        return result

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument]
    ) -> object:
        """Call the function; a graph under autocast is run node by node as well."""
        if target is not torch.ops.higher_order.wrap_with_autocast:
            return super().call_function(target, args, kwargs)
        device, dtype, enabled, cached, inner, *taken = cast(_UnderAutocast, args)
        with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cached):
            return _CheckedRun(inner, self._symbols).run(*taken, enable_io_processing=False)

    def _describe_difference(self, promised: Sequence[object], real: Sequence[object]) -> str:
        if len(promised) != len(real):
            return f"gives {len(real)} values, promised {len(promised)}"
        values = zip(promised, real, strict=True)
        return next(
            (said for each, found in values if (said := describe_difference(each, found, self._symbols))), ""
        )


def _read_results(node: Node, values: object) -> object:
    """Return the results that another node reads; torch's meta kernels are not reliable about the others."""
    if node.target is operator.getitem:
        return values if node.users else []
    if not isinstance(values, tuple | list) or any(u.target is not operator.getitem for u in node.users):
        return values
    return [values[cast(int, user.args[1])] for user in node.users if user.users]


def _stop_at(node: Node, differs: str) -> _Stop:
    operator = str(node.target) if node.op == "call_function" else f"{node.op} {node.target}"
    return _Stop(
        BrokenPromise(node=node.name, operator=operator, place=source_line_of(node), differs=differs)
    )
