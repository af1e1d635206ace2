"""Lies about the code that the compiler makes."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from tests.planted.lies.compiler import (
    change_output,
    change_results,
    lying_where,
    replace_operator,
    swap_inputs,
    swap_outputs,
)
from tests.planted.lies.lie import Lie

aten = torch.ops.aten


def _between(low: int, high: int) -> Callable[[Tensor], Tensor]:
    def change(values: Tensor) -> Tensor:
        rows = torch.full((), values.shape[0])
        return torch.where((rows >= low) & (rows <= high), values * 1.01, values)

    return change


LIES = (
    Lie(
        name="rows_from_400",
        does="tanh is 1 % too large in rows from 400 on",
        plant=change_results(aten.tanh.default, lying_where(lambda row: row >= 400)),
        code="verification_failed",
        says=("score", "batch=401", "passes with 400 rows"),
        family="ScorerFamily",
        smallest="aten.tanh.default",
    ),
    Lie(
        name="between_33_and_63",
        does="tanh is 1 % too large where there are 33 to 63 rows",
        plant=change_results(aten.tanh.default, _between(33, 63)),
        code="verification_failed",
        says=("score", "the smallest that fails: batch=33"),
        family="ScorerFamily",
        smallest="aten.tanh.default",
    ),
    Lie(
        name="gelu_by_tanh",
        does="gelu is computed by its approximation with tanh",
        plant=replace_operator(aten.gelu.default, lambda x: functional.gelu(x, approximate="tanh")),
        code="verification_failed",
        says=("batch_",),
        family="ScorerFamily",
        smallest="aten.gelu.default",
    ),
    Lie(
        name="inputs_swapped",
        does="two inputs of one shape and dtype are taken for each other",
        plant=swap_inputs("price", "age"),
        code="verification_failed",
        says=("the inputs age and price are in each other's place",),
    ),
    Lie(
        name="outputs_swapped",
        does="two outputs of one shape and dtype are given for each other",
        plant=swap_outputs("score", "value"),
        code="verification_failed",
        says=("the outputs score and value are in each other's place",),
    ),
    Lie(
        name="3e-5_too_much",
        does="an output is 3e-5 too large",
        plant=change_output("score", lambda score: score + 3e-5),
        code="verification_failed",
        says=("score",),
    ),
    Lie(
        name="ids_and_counts_swapped",
        does="the ids of users and the lengths of histories are taken for each other",
        plant=swap_inputs("user", "counts"),
        code="verification_failed",
        says=("the inputs counts and user are in each other's place",),
    ),
)
