"""Shortening histories half way up the stack."""

import torch

from exporter.models.blocks.jagged import Layout
from exporter.models.hstu.sequence import EncoderSequence
from exporter.models.hstu.stu import truncate_sequence


def sequence_of(lengths: list[int], candidates: list[int] | None = None) -> EncoderSequence:
    """Elements whose values and times are their numbers."""
    total = sum(lengths)
    return EncoderSequence(
        values=torch.arange(float(total)).unsqueeze(1),
        timestamps=torch.arange(float(total)),
        layout=Layout.of(torch.tensor(lengths), total=total),
        candidates=Layout.of(torch.tensor(candidates), total=sum(candidates)) if candidates else None,
    )


def test_the_prefix_and_the_tail_stay() -> None:
    short = truncate_sequence(sequence_of([6, 2, 4]), prefix=1, tail=2)
    assert short.values.squeeze(1).tolist() == [0, 4, 5, 6, 7, 8, 10, 11]
    assert torch.equal(short.timestamps, short.values.squeeze(1))
    assert short.layout.lengths.tolist() == [3, 2, 3]


def test_candidates_stay_as_well() -> None:
    short = truncate_sequence(sequence_of([6, 3, 2], [2, 1, 2]), prefix=0, tail=2)
    assert short.timestamps.tolist() == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert short.history_lengths.tolist() == [2, 2, 0]


def test_short_histories_are_left_alone() -> None:
    whole = sequence_of([2, 0])
    assert torch.equal(truncate_sequence(whole, prefix=0, tail=5).values, whole.values)
