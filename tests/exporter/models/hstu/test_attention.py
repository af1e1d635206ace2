"""Who sees whom."""

import pytest
import torch

from exporter.models.hstu.attention import Visibility
from exporter.models.jagged import Layout


def mask(**options):
    visibility = Visibility(**{"prefix": 0, "window": 0, "sla_k1": 0, "sla_k2": 0} | options)
    visible = visibility.mask(Layout.of(torch.tensor([5]), total=5))[0]
    return ["".join("x" if seen else "." for seen in row) for row in visible.tolist()]


def test_an_event_sees_itself_and_what_came_before():
    assert mask() == ["x....", "xx...", "xxx..", "xxxx.", "xxxxx"]


def test_a_window_ends_the_view_back():
    assert mask(window=1) == ["x....", "xx...", ".xx..", "..xx.", "...xx"]


def test_contextual_elements_see_the_whole_row():
    assert mask(prefix=2) == ["xxxxx", "xxxxx", "xxx..", "xxxx.", "xxxxx"]


def test_the_context_counts_as_one_place_of_a_window():
    assert mask(prefix=2, window=1) == ["xxxxx", "xxxxx", "xxx..", "..xx.", "...xx"]


def test_semi_local_attention_sees_the_latest_and_the_first():
    assert mask(sla_k1=2, sla_k2=1) == ["x....", "xx...", "xxx..", "x.xx.", "x..xx"]


@pytest.mark.parametrize("options", [{"sla_k1": 2}, {"sla_k2": 2}])
def test_either_half_of_semi_local_attention_may_be_off(options):
    expected = {"sla_k1": "...xx", "sla_k2": "xx..."}
    assert mask(**options)[4] == expected[next(iter(options))]
