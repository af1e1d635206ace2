"""Shortening histories half way up the stack."""

import torch

from exporter.models.hstu.stu import keep_tails, shortened
from exporter.models.jagged import Layout


def test_the_prefix_and_the_tail_stay() -> None:
    whole = Layout.of(torch.tensor([6, 2, 4]), total=12)
    short = shortened(whole, prefix=1, tail=2)
    kept = keep_tails(torch.arange(12.0).unsqueeze(1), whole, short, prefix=1)
    assert kept.squeeze(1).tolist() == [0, 4, 5, 6, 7, 8, 10, 11]
    assert short.lengths.tolist() == [3, 2, 3]


def test_short_histories_are_left_alone() -> None:
    whole = Layout.of(torch.tensor([2, 0]), total=2)
    values = torch.arange(2.0).unsqueeze(1)
    assert torch.equal(keep_tails(values, whole, shortened(whole, prefix=0, tail=5), prefix=0), values)
