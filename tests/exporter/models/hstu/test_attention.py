"""Who sees whom."""

import pytest
import torch

from exporter.models.hstu.attention import Visibility
from exporter.models.hstu.sequence import EncoderSequence
from exporter.models.jagged import Layout


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
