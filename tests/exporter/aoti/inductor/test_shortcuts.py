"""Shortcuts lead where inductor's own way leads."""

import operator
from typing import Any
from unittest import mock

import pytest
import sympy
import torch
from torch._inductor import lowering  # noqa: TID251  what registers rules
from torch._inductor.codegen.cpp import CppVecOverrides  # noqa: TID251  the way without shortcuts
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler  # noqa: TID251  the same
from torch._subclasses import FakeTensorMode  # noqa: TID251  tensors of symbolic sizes
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from exporter.aoti.inductor.shortcuts import remember_sizes, shortcuts
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


def _sizes() -> tuple[torch.SymInt, torch.SymInt]:
    """Return two symbolic sizes, whose values are 5 and 7."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 2)
    tensor = mode.from_tensor(torch.ones(5, 7), symbolic_context=context)
    first, second = tensor.shape
    assert isinstance(first, torch.SymInt) and isinstance(second, torch.SymInt)
    return first, second


@pytest.mark.parametrize(
    "operation",
    [operator.add, operator.mul, operator.sub, operator.eq, operator.lt, operator.ge, torch.sym_max],
)
def test_a_remembered_operation_on_sizes_gives_what_torch_computes(operation: Any) -> None:
    first, second = _sizes()
    own = [operation(*pair).node for pair in ((first, second), (second, first), (first, 3))]
    with remember_sizes():
        for _ in range(2):  # computed, and then remembered
            found = [operation(*pair).node for pair in ((first, second), (second, first), (first, 3))]
            assert [str(each.expr) for each in found] == [str(each.expr) for each in own]
            assert [(each.hint, each.pytype) for each in found] == [(each.hint, each.pytype) for each in own]
            assert len({id(each) for each in found}) == len(found)


def test_an_operation_on_sizes_is_computed_once_for_each_environment_and_what_it_knows() -> None:
    computed: list[tuple[object, object]] = []
    compute: Any = vars(SymNode)["_add"]

    def note(self: SymNode, other: SymNode) -> SymNode:
        computed.append((self.expr, other.expr))
        result: SymNode = compute(self, other)
        return result

    with mock.patch.object(SymNode, "_add", note), remember_sizes():
        first, second = _sizes()
        computed.clear()
        assert (first + second).node is not (first + second).node
        assert len(computed) == 1
        torch._check(first == 5)
        assert str((first + second).node.expr) == f"{second.node.expr} + 5"
        assert len(computed) == 2
        others = _sizes()
        computed.clear()
        assert (others[0] + others[1]).node.shape_env is others[0].node.shape_env
        assert len(computed) == 1


def test_functions_for_vectors_are_wrapped_once_and_by_inductor_for_each_kernel() -> None:
    assert CppVecOverrides().add is not CppVecOverrides().add
    with shortcuts():
        assert CppVecOverrides().add is CppVecOverrides().add
        assert vars(CppVecOverrides()).keys() == vars(CppVecOverrides()).keys()
    assert CppVecOverrides().add is not CppVecOverrides().add
