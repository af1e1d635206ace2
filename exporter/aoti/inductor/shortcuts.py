"""Shortcuts through inductor's Python that lead to the same code: see `workarounds.SHORTCUTS`."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest import mock

import sympy
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler

from exporter.aoti.probe.needs import STRIDES, home_of


@contextmanager
def shortcuts() -> Iterator[None]:
    """Let inductor take each shortcut."""
    with ExitStack() as patches:
        patches.enter_context(_make_dtype_rules_once())
        patches.enter_context(_subtract_polynomials())
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
