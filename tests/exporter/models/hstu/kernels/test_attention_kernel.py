"""The attention kernel, interpreted, against its definition in float64."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.gpu.cases.attention import AttentionCase, MaskSettings, masked_cases
from benchmarks.gpu.cases.references import error_of
from exporter.models.hstu.kernels.attention import AttentionForm, Tiles, attention_in_torch, launch
from tests.exporter.models.hstu.kernels.conftest import Interpreted

Attend = Callable[[AttentionForm, Tensor, Tensor, Tensor | None], Tensor]

EDGES = AttentionCase(lengths=(0, 1, 15, 16, 17, 0, 33), heads=1)


@pytest.fixture
def attend(interpreted: Interpreted) -> Attend:
    return attending(interpreted, Tiles(rows=16, columns=16, warps=4, stages=1))


def attending(interpreted: Interpreted, tiles: Tiles) -> Attend:
    """The kernel with an output that is poisoned first."""
    kernel = interpreted("attention_kernel").hstu_attention_kernel

    def attend(form: AttentionForm, x_NW: Tensor, offsets_B1: Tensor, candidates_B: Tensor | None) -> Tensor:
        out_NE = torch.full((x_NW.shape[0], form.width), torch.nan, dtype=x_NW.dtype)
        launch(kernel, form, tiles, x_NW, offsets_B1, candidates_B, out_NE, approximate=False)
        return out_NE

    return attend


@pytest.mark.parametrize("case", list(masked_cases(EDGES)), ids=str)
def test_every_mask_at_the_edges_of_tiles(attend: Attend, case: AttentionCase) -> None:
    assert case.error(attend) < case.limit


@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (32, 16)])
def test_tiles_of_any_shape(interpreted: Interpreted, rows: int, columns: int) -> None:
    attend = attending(interpreted, Tiles(rows=rows, columns=columns, warps=4, stages=1))
    for case in masked_cases(replace(EDGES, lengths=(33, 0, 50))):
        assert case.error(attend) < case.limit, str(case)


def test_numbers_of_16_bits(attend: Attend) -> None:  # bf16, which the interpreter cannot multiply: tests/gpu
    case = replace(EDGES, dtype=torch.float16, candidates=(0, 1, 2, 3, 4, 0, 5))
    assert case.error(attend) < case.limit


@pytest.mark.parametrize(("attention_dim", "hidden_dim"), [(16, 256), (25, 16), (256, 33), (8, 40)])
def test_widths_that_are_no_powers_of_two(attend: Attend, attention_dim: int, hidden_dim: int) -> None:
    case = replace(EDGES, lengths=(20, 3), heads=3, attention_dim=attention_dim, hidden_dim=hidden_dim)
    assert case.error(attend) < case.limit


def test_a_row_of_8192_elements(interpreted: Interpreted) -> None:
    case = AttentionCase(lengths=(8192,), candidates=(70,), heads=1, mask=MaskSettings(window=100, prefix=3))
    assert case.error(attending(interpreted, Tiles(rows=128, columns=128, warps=4, stages=1))) < case.limit


def test_more_rows_than_are_searched_at_a_time(attend: Attend) -> None:
    lengths = tuple(int(length) for length in torch.randint(0, 3, (270,)))
    case = replace(EDGES, lengths=lengths)
    assert case.error(attend) < case.limit


def test_nothing_but_empty_rows(attend: Attend) -> None:
    out = attend(EDGES.form, torch.zeros(0, 64), torch.zeros(4, dtype=torch.int64), None)
    assert out.shape == (0, 16)


@pytest.mark.parametrize("lengths", [(0, 31, 32, 0), (33, 0, 0), (0, 0, 0, 1), (16,) * 5])
def test_rows_around_whole_tiles_with_empty_ones_at_both_ends(
    interpreted: Interpreted, lengths: tuple[int, ...]
) -> None:
    attend = attending(interpreted, Tiles(rows=32, columns=16, warps=4, stages=1))
    rows = replace(EDGES, lengths=lengths, mask=MaskSettings(window=7, prefix=3))
    for candidates in (None, tuple(length // 2 for length in lengths)):
        assert replace(rows, candidates=candidates).error(attend) < rows.limit


# An exponential that overflows is how the sigmoid of a very negative score comes to be 0.
@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
@pytest.mark.parametrize("scale", [1e-20, 300.0, 1e9])
def test_scores_of_any_size_give_numbers(attend: Attend, scale: float) -> None:
    x_NW, offsets_B1, candidates_B = EDGES.inputs("cpu")
    form = replace(EDGES.form, alpha=EDGES.form.alpha * scale)
    reference = attention_in_torch(form, x_NW.double(), offsets_B1, candidates_B)
    assert error_of(attend(form, x_NW, offsets_B1, candidates_B), reference) < EDGES.limit


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_that_lie_apart_and_offsets_of_either_kind(attend: Attend, dtype: torch.dtype) -> None:
    def apart(form: AttentionForm, x: Tensor, offsets: Tensor, candidates: Tensor | None) -> Tensor:
        assert candidates is not None
        wide = torch.full((x.shape[0], x.shape[1] + 24), torch.nan)
        wide[:, 5 : 5 + x.shape[1]] = x
        return attend(form, wide[:, 5 : 5 + x.shape[1]], offsets.to(dtype), candidates.to(dtype))

    case = replace(EDGES, heads=2, candidates=(0, 1, 2, 3, 4, 0, 5))
    assert case.error(apart) < case.limit


def test_elements_behind_two_to_the_31_numbers_are_found(attend: Attend) -> None:
    def far(form: AttentionForm, x: Tensor, offsets: Tensor, candidates: Tensor | None) -> Tensor:
        stride = 1 << 26  # of pages that nobody touches
        spread = torch.empty(x.shape[0] * stride, dtype=x.dtype).as_strided(x.shape, (stride, 1))
        return attend(form, spread.copy_(x), offsets, candidates)

    case = replace(EDGES, lengths=(16, 17, 7), dtype=torch.float16)
    assert case.error(far) < case.limit


def test_an_element_that_is_left_out_would_be_noticed(attend: Attend) -> None:
    def careless(form: AttentionForm, x: Tensor, offsets: Tensor, candidates: Tensor | None) -> Tensor:
        return attend(replace(form, window=19), x, offsets, candidates)

    case = replace(EDGES, mask=MaskSettings(window=20))
    assert case.error(careless) > 1e3 * case.limit


@pytest.mark.parametrize("offsets", [[0, 20, 60], [0, 60, 20], [0, -9, 20], [0, 90, 95]])
def test_offsets_that_do_not_fit_lead_nowhere_outside(interpreted: Interpreted, offsets: list[int]) -> None:
    kernel = interpreted("attention_kernel").hstu_attention_kernel
    form, tiles = EDGES.form, Tiles(rows=16, columns=16, warps=4, stages=1)
    around = torch.full((200, form.width), torch.nan)
    x_NW, out_NE = torch.randn(200, 64)[80:100], around[80:100]
    launch(kernel, form, tiles, x_NW, torch.tensor(offsets), None, out_NE, approximate=False)
    assert around[:80].isnan().all()
    assert around[100:].isnan().all()
