"""Who sees whom, and that every attention computes the same of it."""

import pytest
import torch
from torch import Tensor

from exporter.models.blocks.jagged import Layout
from exporter.models.hstu.attention import AllHeads, Attention, HeadByHead, Heads, TritonAttention, Visibility
from exporter.models.hstu.sequence import EncoderSequence


def mask(
    *, prefix: int = 0, window: int = 0, sla_k1: int = 0, sla_k2: int = 0, candidates: int = 0
) -> list[str]:
    """What each of five elements sees, the last `candidates` of which are no events."""
    visibility = Visibility(prefix=prefix, window=window, sla_k1=sla_k1, sla_k2=sla_k2)
    sequence = EncoderSequence(
        values=torch.zeros(5, 1),
        timestamps=torch.zeros(5),
        layout=Layout.of(torch.tensor([5]), total=5),
        candidates=Layout.of(torch.tensor([candidates]), total=candidates) if candidates else None,
    )
    visible = visibility.mask(sequence)[0]
    return ["".join("x" if seen else "." for seen in row) for row in visible.tolist()]


def test_an_event_sees_itself_and_what_came_before() -> None:
    assert mask() == ["x....", "xx...", "xxx..", "xxxx.", "xxxxx"]


def test_a_window_ends_the_view_back() -> None:
    assert mask(window=1) == ["x....", "xx...", ".xx..", "..xx.", "...xx"]


def test_contextual_elements_see_the_whole_row() -> None:
    assert mask(prefix=2) == ["xxxxx", "xxxxx", "xxx..", "xxxx.", "xxxxx"]


def test_the_context_counts_as_one_place_of_a_window() -> None:
    assert mask(prefix=2, window=1) == ["xxxxx", "xxxxx", "xxx..", "..xx.", "...xx"]


def test_semi_local_attention_sees_the_latest_and_the_first() -> None:
    assert mask(sla_k1=2, sla_k2=1) == ["x....", "xx...", "xxx..", "x.xx.", "x..xx"]


@pytest.mark.parametrize("options", [{"sla_k1": 2}, {"sla_k2": 2}])
def test_either_half_of_semi_local_attention_may_be_off(options: dict[str, int]) -> None:
    expected = {"sla_k1": "...xx", "sla_k2": "xx..."}
    assert mask(**options)[4] == expected[next(iter(options))]


def test_a_candidate_sees_the_history_and_itself() -> None:
    assert mask(candidates=2) == ["x....", "xx...", "xxx..", "xxxx.", "xxx.x"]


def test_the_context_does_not_see_candidates() -> None:
    assert mask(prefix=1, candidates=2) == ["xxx..", "xx...", "xxx..", "xxxx.", "xxx.x"]


def test_a_window_counts_back_from_the_end_of_the_history() -> None:
    assert mask(window=1, candidates=2) == ["x....", "xx...", ".xx..", "..xx.", "..x.x"]


def test_semi_local_candidates_see_all_of_the_history_but_not_themselves() -> None:
    assert mask(sla_k1=1, sla_k2=1, candidates=2) == ["x....", "xx...", "x.x..", "xxx..", "xxx.."]


def attended(
    kind: type[Attention], count: int, visibility: Visibility, candidates: list[int] | None
) -> Tensor:
    """Of rows of 6, 0, 1 and 9 elements with drawn numbers."""
    torch.manual_seed(0)
    heads = Heads(count=count, attention_dim=4, hidden_dim=6, alpha=0.5, divisor=9)
    layout = Layout.of(torch.tensor([6, 0, 1, 9]), total=16)
    sequence = EncoderSequence(
        values=torch.randn(16, sum(heads.widths)),
        timestamps=torch.zeros(16),
        layout=layout,
        candidates=Layout.of(torch.tensor(candidates), total=sum(candidates)) if candidates else None,
    )
    attention = kind(heads, visibility)
    mask_BLL = visibility.mask(sequence) if attention.reads_mask else None
    counts_B = None if sequence.candidates is None else sequence.candidates.lengths
    result: Tensor = attention(sequence.values, layout.offsets, counts_B, mask_BLL)
    return result


@pytest.mark.parametrize("candidates", [None, [2, 0, 1, 3]], ids=["history", "candidates"])
@pytest.mark.parametrize(
    "options",
    [{}, {"window": 3}, {"prefix": 2}, {"prefix": 2, "window": 3}, {"sla_k1": 2, "sla_k2": 3}, {"sla_k1": 3}],
    ids=str,
)
@pytest.mark.parametrize("kind", [HeadByHead, TritonAttention])
@pytest.mark.parametrize("heads", [1, 3])
def test_all_of_them_compute_the_same(
    kind: type[Attention], heads: int, options: dict[str, int], candidates: list[int] | None
) -> None:
    visibility = Visibility(**{"prefix": 0, "window": 0, "sla_k1": 0, "sla_k2": 0, **options})
    expected = attended(AllHeads, heads, visibility, candidates)
    torch.testing.assert_close(attended(kind, heads, visibility, candidates), expected)
