"""Shortcuts lead where inductor's own way leads."""

from typing import Any

import pytest
import sympy
from torch._inductor import lowering  # noqa: TID251  what registers rules
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler  # noqa: TID251  the same
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from exporter.aoti.inductor.shortcuts import shortcuts
from exporter.aoti.probe.needs import STRIDES, home_of

SIZES: Any = home_of(STRIDES, "stride_at")

X, Y, S = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("x0", "x1", "s0"))
POLYNOMIALS = [
    sympy.Integer(7),
    X,
    16 * X + Y,
    X * S + Y,
    S * (X * 4 + Y) - S,
    (X + 1) * (S + 3) * 64 + Y * S**2,
]
OTHERS = [FloorDiv(X, 16) * 4 + Y, ModularIndexing(X, 1, 32) + X, X + FloorDiv(S, 2) * Y]


@pytest.mark.parametrize("index", [*POLYNOMIALS, *OTHERS], ids=str)
@pytest.mark.parametrize("length", [None, 16])
def test_strides_are_those_of_inductor(index: sympy.Expr, length: int | None) -> None:
    own = SIZES.stride_at_vec_range.__wrapped__(index, X, length)
    with shortcuts():
        quick = SIZES.stride_at_vec_range.__wrapped__(index, X, length)
    assert sympy.expand(quick - own) == 0
    assert quick.is_number == own.is_number and quick.has(X) == own.has(X)


def test_an_index_that_is_no_polynomial_takes_inductors_way(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[sympy.Expr] = []

    def take(index: sympy.Expr, var: sympy.Symbol) -> sympy.Expr:
        taken.append(index)
        return var

    monkeypatch.setattr(SIZES, "stride_at", take)
    with shortcuts():
        for index in (*POLYNOMIALS, *OTHERS):
            SIZES.stride_at(index, X)
    assert taken == OTHERS


def _table() -> Any:
    return DtypePropagationOpsHandler()


def test_rules_for_dtypes_are_made_once_and_by_inductor_again_and_again() -> None:
    assert lowering.lowerings
    table = _table()
    table.add = None
    assert _table() is table and table.add is not None
    with shortcuts():
        assert _table() is table
        table.add = None
        assert _table() is table and table.add is None
    _table()
