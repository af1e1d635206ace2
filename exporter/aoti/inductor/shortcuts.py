"""Shortcuts through inductor's Python that lead to the same code: see `workarounds.SHORTCUTS`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import sympy
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.sym_node import SymNode
from torch.utils._pytree import tree_map

from exporter.aoti.probe.needs import STRIDES, home_of

T = TypeVar("T")

# Operations on sizes whose results depend on nothing but their operands.
_PURE = ("_add", "_mul", "_sub", "_eq", "_ne", "_lt", "_le", "_gt", "_ge", "_sym_max", "_sym_min")


@contextmanager
def shortcuts() -> Iterator[None]:
    """Let inductor take each shortcut."""
    with ExitStack() as patches:
        patches.enter_context(_make_dtype_rules_once())
        patches.enter_context(_subtract_polynomials())
        patches.enter_context(_wrap_vector_operations_once())
        patches.enter_context(_map_single_values())
        patches.enter_context(remember_sizes())
        yield


@contextmanager
def remember_sizes() -> Iterator[None]:
    """Compute each operation on two symbolic sizes once: tensors without values ask for the same ones.

    Nothing is remembered while operations are recorded in a graph, or after a size has become known.
    """
    known: dict[tuple[object, ...], SymNode] = {}

    def remember(name: str, compute: Callable[[SymNode, SymNode], SymNode]) -> Callable[..., SymNode]:
        def recall(self: SymNode, other: SymNode) -> SymNode:
            env = self.shape_env
            changes = getattr(env, "_replacements_version_counter", None)  # torch 2.11 does not count them
            if env is None or changes is None or env._translation_validation_enabled or get_proxy_mode():
                return compute(self, other)
            # The environment itself is part of the key, so that it lives as long as what is known of it.
            key = (name, env, changes, *_identity(self), *_identity(other))
            found = known.get(key)
            if found is None:
                found = known[key] = compute(self, other)
            copied = object.__new__(SymNode)
            copied.__dict__.update(found.__dict__)  # as graphs tell sizes apart by their nodes
            return copied

        return recall

    with ExitStack() as patches:
        for name in _PURE:
            compute = getattr(SymNode, name)
            patches.enter_context(mock.patch.object(SymNode, name, remember(name, compute)))
        yield


def _identity(node: SymNode) -> tuple[object, ...]:
    return (
        node._expr,
        type(node._expr),
        node.pytype,
        node._hint,
        node.constant,
        node._optimized_summation,
    )


@contextmanager
def _wrap_vector_operations_once() -> Iterator[None]:
    """Wrap the functions for vectors once, and not again for every kernel; the wrappers have no state."""
    from torch._inductor.codegen.cpp import CppVecOverrides  # its import takes half a second

    make = CppVecOverrides.__new__

    @cache
    def wrapped(cls: type) -> dict[str, object]:
        return dict(vars(make(cls)))  # type: ignore[no-untyped-call]  # inductor does not annotate it

    def share(cls: type) -> object:
        made: object = object.__new__(cls)
        vars(made).update(wrapped(cls))
        return made

    with mock.patch.object(CppVecOverrides, "__new__", share):
        yield


@contextmanager
def _map_single_values() -> Iterator[None]:
    """Call what is mapped over an operation's results at once where there is a single one, which is usual."""
    from torch._inductor.codegen import common  # its import takes half a second

    def map_values(function: Callable[[object], T], values: object) -> object:
        if isinstance(values, str | common.CSEVariable):
            return function(values)
        return tree_map(function, values)

    with mock.patch.object(common, "pytree", SimpleNamespace(tree_map=map_values)):
        yield


@contextmanager
def _make_dtype_rules_once() -> Iterator[None]:
    """Fill the one table of rules for dtypes once, and not again for every operation of every kernel."""
    fill = DtypePropagationOpsHandler.__init__
    filled: list[DtypePropagationOpsHandler] = []

    def fill_once(self: DtypePropagationOpsHandler) -> None:
        if not any(each is self for each in filled):
            fill(self)
            filled.append(self)

    with mock.patch.object(DtypePropagationOpsHandler, "__init__", fill_once):
        yield


@contextmanager
def _subtract_polynomials() -> Iterator[None]:
    """Find strides of polynomial indices by multiplying out; sympy's simplify tries everything it knows."""
    home: Any = home_of(STRIDES, "stride_at")
    stride_at, simplify_index = home.stride_at, home.simplify_index_in_vec_range

    @cache
    def quick_stride(index: sympy.Expr, var: sympy.Symbol) -> sympy.Expr:
        if not index.is_polynomial(*index.free_symbols):
            return stride_at(index, var)
        return sympy.expand(index.xreplace({var: var + 1}) - index)

    @cache
    def quick_index(index: sympy.Expr, var: sympy.Symbol, vec_length: int) -> sympy.Expr:
        if index.is_polynomial(*index.free_symbols):  # has nothing that could be simpler within a vector
            return index
        return simplify_index(index, var, vec_length)

    with (
        mock.patch.object(home, "stride_at", quick_stride),
        mock.patch.object(home, "simplify_index_in_vec_range", quick_index),
    ):
        yield
