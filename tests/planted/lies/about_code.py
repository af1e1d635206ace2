"""Lies about the code that the compiler makes."""

import re
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from tests.planted.lies.compiler import (
    change_output,
    change_results,
    edit_source,
    lying_where,
    replace_operator,
    swap_inputs,
    swap_outputs,
    swap_tables,
)
from tests.planted.lies.lie import Lie

aten = torch.ops.aten


def _between(low: int, high: int) -> Callable[[Tensor], Tensor]:
    def change(values: Tensor) -> Tensor:
        rows = torch.full((), values.shape[0])
        return torch.where((rows >= low) & (rows <= high), values * 1.01, values)

    return change


def _empty_sums_are_nan(sums: Tensor) -> Tensor:
    empty = sums.abs().sum(1, keepdim=True) == 0
    return torch.where(empty, torch.nan, sums)


def _linear_in_bfloat16(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    low = torch.bfloat16
    return functional.linear(x.to(low), weight.to(low), bias.to(low)).float()


def _wrong_rest_of_six(values: Tensor) -> Tensor:
    return torch.where(torch.full((), values.shape[0]) % 8 == 6, values * 1.01, values)


_RETURNED = re.compile(r"^( +)output_handles\[0\] = (\w+)\.release\(\);$", re.M)
_RUN = "void AOTInductorModel::run_impl("


def _return_kept_memory(wrapper: str) -> str:
    kept = r"""
    static std::unordered_map<int64_t, AtenTensorHandle> planted;
    int64_t planted_size; void* planted_new; void* planted_old;
    aoti_torch_get_numel(\2.get(), &planted_size);
    if (planted.count(planted_size) == 0) planted[planted_size] = \2.release();
    else {
      aoti_torch_get_data_ptr(\2.get(), &planted_new);
      aoti_torch_get_data_ptr(planted[planted_size], &planted_old);
      std::copy_n((float*)planted_new, planted_size, (float*)planted_old);
    }
    aoti_torch_new_tensor_handle(planted[planted_size], &output_handles[0]);
"""
    return _RETURNED.sub(kept, wrapper)


def _overwrite_first_input(wrapper: str) -> str:
    taken = re.compile(r"^( +auto (\w+) = std::move\(inputs\[0\]\);)$", re.M)
    return taken.sub(r"\1 ((float*)(\2.data_ptr()))[0] += 1.0f;", wrapper)


def _drop_stride_checks(wrapper: str) -> str:
    checks = r"^ +check_input_\d+\(input_handles\);$|assert_size_stride\(.*?, \"input\"\);"
    return re.sub(checks, "", wrapper, flags=re.M)


def _drop_dtype_checks(wrapper: str) -> str:
    return re.sub(r"if \((\w+)_expected_dtype != \1_dtype\)", "if (false)", wrapper)


def _drop_dtype_checks_of_ids(wrapper: str) -> str:
    return re.sub(
        r"(aoti_torch_dtype_int64\(\);\s+if \()\w+_expected_dtype != \w+_dtype\)", r"\1false)", wrapper
    )


def _stop_at_seven_rows(wrapper: str) -> str:
    """Let the last kernel stop at row 7."""
    *_, last = re.finditer(r"^ +cpp_fused_\w+\(.*, (s\d+)\);$", wrapper, re.M)
    at, end = last.span(1)
    return f"{wrapper[:at]}std::min<int64_t>({last[1]}, 7){wrapper[end:]}"


def _wrong_if(condition: str, *, include: str = "", declare: str = "") -> Callable[[str], str]:
    """Return an edit by which the first number of the first output is 1 % too large under a condition."""

    def edit(wrapper: str) -> str:
        wrong = rf"""
    {{
      {declare}
      void* planted;
      aoti_torch_get_data_ptr(\2.get(), &planted);
      if ({condition}) ((float*)planted)[0] *= 1.01f;
    }}
\1output_handles[0] = \2.release();"""
        return (f"#include <{include}>\n" if include else "") + _RETURNED.sub(wrong, wrapper)

    return edit


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
        name="rest_of_six",
        does="tanh is 1 % too large where rows that come in eights leave six",
        plant=change_results(aten.tanh.default, _wrong_rest_of_six),
        code="verification_failed",
        says=("score",),
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
    Lie(
        name="nan_on_empty_histories",
        does="the sum of an empty history is NaN",
        plant=change_results(aten.index_add.default, _empty_sums_are_nan),
        code="verification_failed",
        says=("score: holds NaN or infinity",),
    ),
    Lie(
        name="histories_of_one_event",
        does="a score is 1 % too large where a history has exactly one event",
        plant=change_output(
            "score", lambda score, counts: torch.where(counts == 1, score * 1.01, score), "counts"
        ),
        code="verification_failed",
        says=("score",),
    ),
    Lie(
        name="histories_of_12_events",
        does="a score is 1 % too large where a history has 12 events, which is more than any row has",
        plant=change_output(
            "score", lambda score, counts: torch.where(counts >= 12, score * 1.01, score), "counts"
        ),
        code="verification_failed",
        says=("score",),
    ),
    Lie(
        name="one_id_of_a_table",
        does="one id finds the row of the next",
        plant=replace_operator(
            aten.embedding.default, lambda table, ids: table[torch.where(ids == 17, 18, ids)], calls=slice(1)
        ),
        code="verification_failed",
        says=("all wrong rows have id 17 of input ids",),
    ),
    Lie(
        name="tables_swapped",
        does="two tables of one shape are read in each other's place",
        plant=swap_tables(),
        code="verification_failed",
        says=("the weights ", "items.weight", "users.weight", "are in each other's place"),
    ),
    Lie(
        name="size_checks_dropped",
        does="inputs of different numbers of rows are taken together",
        plant=edit_source(lambda wrapper: re.sub(r'assert_size_stride\(.*?, "input"\);', "", wrapper)),
        code="verification_failed",
        says=("was computed instead of refused",),
        family="ScorerFamily",
    ),
    Lie(
        name="bfloat16_inside",
        does="a linear layer is computed in bfloat16",
        plant=replace_operator(aten.linear.default, _linear_in_bfloat16, calls=slice(1)),
        code="verification_failed",
        says=("score",),
        family="ScorerFamily",
        smallest="aten.linear.default",
    ),
    Lie(
        name="random_numbers",
        does="a score moves by 5e-6 from call to call",
        plant=change_output("score", lambda score: score + torch.rand_like(score) * 1e-6 * 5),
        code="package_unsteady",
        says=("score", "between two runs"),
        family="ScorerFamily",
    ),
    Lie(
        name="uninitialised_memory",
        does="a sum begins with what the memory held before",
        plant=replace_operator(aten.new_zeros.default, lambda x, size, **given: x.new_empty(size)),
        code="package_unsteady",
        says=("two runs",),
    ),
    Lie(
        name="int32_for_int64",
        does="an output is given as int32, with the right numbers",
        plant=change_output("best", lambda best: best.to(torch.int32)),
        code="interface_broken",
        says=("best", "int32"),
    ),
    Lie(
        name="every_other_number",
        does="an output lies in every other place of its memory",
        plant=change_output("score", lambda score: torch.repeat_interleave(score, 2)[::2]),
        code="interface_broken",
        says=("score", "strides"),
        family="ScorerFamily",
    ),
    Lie(
        name="returned_memory_reused",
        does="calls of one size return the same memory, overwritten by each",
        plant=edit_source(_return_kept_memory),
        code="interface_broken",
        says=("a later call changes the output score",),
        family="ScorerFamily",
    ),
    Lie(
        name="input_overwritten",
        does="a call adds 1 to one of its inputs",
        plant=edit_source(_overwrite_first_input),
        code="package_unsteady",
        says=("score", "between two runs", "a call changes its input "),
        family="ScorerFamily",
    ),
    Lie(
        name="other_epsilon",
        does="a layer norm is computed with an epsilon of 1e-3",
        plant=replace_operator(
            aten.layer_norm.default,
            lambda x, shape, weight, bias, *_: functional.layer_norm(x, shape, weight, bias, 1e-3),
        ),
        code="verification_failed",
        says=("score",),
        family="ScorerFamily",
        smallest="aten.layer_norm.default",
    ),
    Lie(
        name="softmax_overflows",
        does="a softmax does not subtract the largest number first, whose exponential is too large for fp32",
        plant=replace_operator(aten.softmax.int, lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True)),
        code="verification_failed",
        says=("score",),
        family="ScorerFamily",
        smallest="aten.softmax.int",
    ),
    Lie(
        name="size_built_in",
        does="a kernel computes the first seven rows, however many there are",
        plant=edit_source(_stop_at_seven_rows),
        code="verification_failed",
        says=("score", "batch=8", "passes with 7 rows"),
        family="ScorerFamily",
    ),
    Lie(
        name="bias_folded",
        does="a bias is that of another checkpoint, as a constant of the code",
        plant=replace_operator(
            aten.linear.default,
            lambda x, w, b: functional.linear(x, w, torch.full_like(b, 0.125)),
            calls=slice(1),
        ),
        code="verification_failed",
        says=("score",),
        family="ScorerFamily",
        smallest="aten.linear.default",
    ),
    Lie(
        name="second_thread",
        does="the first score is too large if torch has more than one thread",
        plant=edit_source(_wrong_if("omp_get_max_threads() > 1", include="omp.h")),
        code="package_unsteady",
        says=("score", "between one thread and more"),
        family="ScorerFamily",
    ),
    Lie(
        name="from_the_100th_call",
        does="the first score is too large from the hundredth call on",
        plant=edit_source(_wrong_if("++planted_calls > 100", declare="static int planted_calls = 0;")),
        code="package_unsteady",
        says=("score is not the same after", "calls"),
        family="ScorerFamily",
    ),
    Lie(
        name="stride_checks_dropped",
        does="inputs that do not lie row by row are read as if they did",
        plant=edit_source(_drop_stride_checks),
        code="interface_broken",
        says=("score is wrong for inputs whose rows do not lie one after the other",),
        family="ScorerFamily",
    ),
    Lie(
        name="dtype_checks_dropped",
        does="inputs of other dtypes are read as if they were of those that the package takes",
        plant=edit_source(_drop_dtype_checks),
        code="interface_broken",
        says=("aoti_model.pt2: its input", "is computed wrongly as float64 instead of refused"),
        family="ScorerFamily",
    ),
    Lie(
        name="dtype_checks_of_ids_dropped",
        does="ids of another dtype are read as if they were int64",
        plant=edit_source(_drop_dtype_checks_of_ids),
        code="interface_broken",
        says=("aoti_model.pt2: its input counts ", " as float64 "),
    ),
)
