"""The attention kernel for CPUs, eager and compiled into a package, against its definition in float64."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from benchmarks.gpu.cases.attention import AttentionCase, masked_cases
from benchmarks.gpu.cases.references import error_of
from exporter.aoti.load import load_package
from exporter.aoti.torch_private import sizes_zero_and_one_stay_dynamic
from exporter.models.hstu.attention import Heads, JaggedAttention, Visibility
from exporter.models.hstu.kernels.attention import attention_in_torch
from tests.compiled_package import compile_package

# Rows around the sizes of a strip of queries, of vectors and of a block of keys.
EDGES = (0, 1, 2, 5, 6, 7, 12, 13, 15, 16, 17, 33, 0)
LONG = (255, 256, 257, 1, 700)
BATCHES: tuple[tuple[int, ...], ...] = (EDGES, LONG, (0,), (1,), (0, 0), (511, 513), (16,) * 40)
TAILS = ("all", "last", "candidates")


def attention_of(case: AttentionCase) -> JaggedAttention:
    form = case.form
    heads = Heads(
        count=form.heads,
        attention_dim=form.attention_dim,
        hidden_dim=form.hidden_dim,
        alpha=form.alpha,
        divisor=int(form.divisor),
    )
    sees = Visibility(prefix=form.prefix, window=form.window, sla_k1=form.sla_k1, sla_k2=form.sla_k2)
    return JaggedAttention(heads, sees)


def split(case: AttentionCase, x_NW: Tensor) -> Sequence[Tensor]:
    parts: Sequence[Tensor] = x_NW.split(attention_of(case).heads.widths, dim=1)
    return parts


def offsets_of(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def tail_counts(case: AttentionCase, tail: str) -> Tensor:
    """How many of each row's last elements ask; one of an empty row, too."""
    if tail == "candidates":
        return torch.tensor(case.candidates)
    return torch.ones(len(case.lengths), dtype=torch.int64)


def expected(case: AttentionCase, x_NW: Tensor, offsets_B1: Tensor, tail: str) -> Tensor:
    """The operator's definition, and zeros for an empty row that asks."""
    candidates_B = None if case.candidates is None else torch.tensor(case.candidates)
    whole_NE = attention_in_torch(case.form, x_NW.double(), offsets_B1, candidates_B)
    if tail == "all":
        return whole_NE
    parts = []
    for count, (start, end) in zip(tail_counts(case, tail).tolist(), pairwise(offsets_B1), strict=True):
        row = whole_NE[start:end]
        short = max(count - len(row), 0)
        parts += [row.new_zeros(short, row.shape[1]), row[len(row) - (count - short) :]]
    return torch.cat(parts)


def asked(case: AttentionCase, x_NW: Tensor, offsets_B1: Tensor, tail: str) -> Tensor:
    """The operator's output for a tail of each row; its queries lie beside no keys, as in an STU layer."""
    _, v, q, k = split(case, x_NW)
    candidates_B = None if case.candidates is None else torch.tensor(case.candidates)
    counts = tail_counts(case, tail)
    picked = [
        torch.cat([q.new_zeros(max(count - (end - start), 0), q.shape[1]), q[max(start, end - count) : end]])
        for count, start, end in zip(
            counts.tolist(), offsets_B1.tolist(), offsets_B1[1:].tolist(), strict=False
        )
    ]
    attention = attention_of(case)
    return attention.attend_tails(torch.cat(picked), k, v, offsets_B1, offsets_of(counts), candidates_B)


@pytest.mark.parametrize(
    ("case", "tail"),
    [
        (case, tail)
        for case in masked_cases(AttentionCase(lengths=EDGES))
        for tail in TAILS
        if tail != "candidates" or case.candidates is not None
    ],
    ids=str,
)
def test_eager_computes_the_definition(case: AttentionCase, tail: str) -> None:
    x_NW, offsets_B1, candidates_B = case.inputs("cpu")
    attention = attention_of(case)
    if tail == "all":
        given = attention(x_NW, offsets_B1, candidates_B, None)
    else:
        given = asked(case, x_NW, offsets_B1, tail)
    torch.testing.assert_close(given, expected(case, x_NW, offsets_B1, tail).float(), rtol=1e-4, atol=1e-6)


class Attentions(nn.Module):
    """Attention by all cases over the same rows: of all elements, and of each row's last."""

    def __init__(self, cases: Sequence[AttentionCase]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x_NW, offsets_B1, last_BQ = inputs["x"] * 1.0, inputs["offsets"], inputs["last"]
        ones_B1 = torch.arange(offsets_B1.shape[0])
        outputs = {}
        for number, case in enumerate(self.cases):
            attention = attention_of(case)
            candidates_B = None if case.candidates is None else inputs["candidates"]
            _, v, _, k = split(case, x_NW)
            outputs[f"all {number}"] = attention(x_NW, offsets_B1, candidates_B, None)
            outputs[f"last {number}"] = attention.attend_tails(
                last_BQ, k, v, offsets_B1, ones_B1, candidates_B
            )
        return outputs


def inputs_of(case: AttentionCase) -> dict[str, Tensor]:
    x_NW, offsets_B1, candidates_B = case.inputs("cpu")
    _, _, q_NQ, _ = split(case, x_NW)
    counts = torch.zeros(len(case.lengths), dtype=torch.int64) if candidates_B is None else candidates_B
    newest_B = offsets_B1.diff() > 0
    last_BQ = torch.zeros(len(case.lengths), q_NQ.shape[1], dtype=q_NQ.dtype)
    last_BQ[newest_B] = q_NQ[offsets_B1[1:][newest_B] - 1]
    return {"x": x_NW, "offsets": offsets_B1, "last": last_BQ, "candidates": counts}


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        {"heads": 2, "attention_dim": 25, "hidden_dim": 67},
        {"heads": 3, "attention_dim": 64, "hidden_dim": 48, "dtype": torch.bfloat16},
    ],
    ids=str,
)
def test_a_package_computes_the_definition_of_all_rows_with_any_number_of_threads(
    shape: dict[str, int], tmp_path: Path
) -> None:
    base = AttentionCase(lengths=EDGES, **shape)  # type: ignore[arg-type]  # a test's own table
    both = [case for case in masked_cases(base) if case.candidates != case.lengths]
    cases = [case for number, case in enumerate(both) if number % 4 in {0, 3}]  # each mask with or without
    module, example = Attentions(cases), inputs_of(both[1])
    rows, elements = Dim("rows", max=1000), Dim("elements", max=100_000)
    dims = {"x": {0: elements}, "offsets": {0: rows + 1}, "last": {0: rows}, "candidates": {0: rows}}
    with sizes_zero_and_one_stay_dynamic():
        program = torch.export.export(module, (example,), dynamic_shapes=(dims,), strict=False)
    package = load_package(compile_package(program, tmp_path / "attention.pt2"), torch.device("cpu"))
    before = torch.get_num_threads()
    for lengths in BATCHES:
        counts = tuple(length // 3 for length in lengths)
        given = inputs_of(replace(base, lengths=lengths, candidates=counts))
        torch.set_num_threads(1)
        alone = package(given)
        torch.set_num_threads(3)
        shared = package(given)
        torch.set_num_threads(before)
        for number, case in enumerate(cases):
            own = replace(case, lengths=lengths, candidates=case.candidates and counts)
            for kind in ("all", "last"):
                name = f"{kind} {number}"
                reference = expected(own, given["x"], given["offsets"], kind)
                assert error_of(alone[name], reference) < own.limit or not reference.any(), f"{kind} {own}"
                assert torch.equal(shared[name], alone[name])
