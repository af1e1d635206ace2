"""Which position and which age an element gets."""

import pytest
import torch
from torch import Tensor

from exporter.config.hstu.encoder import PositionalEncoderConfig
from exporter.models.blocks.jagged import Layout
from exporter.models.hstu.positional_encoder import (
    PositionalEncoder,
    PositionEncoding,
    TritonPositionEncoding,
)
from exporter.models.hstu.sequence import EncoderSequence


def config(*, use_time_encoding: bool = True, log: bool = False) -> PositionalEncoderConfig:
    return PositionalEncoderConfig(
        num_position_buckets=6,
        num_time_buckets=100,
        use_time_encoding=use_time_encoding,
        time_bucket_fn="log" if log else "sqrt",
        time_bucket_increments=1.0 if log else 60.0,
    )


def added(
    timestamps: list[float],
    lengths: list[int],
    *,
    config: PositionalEncoderConfig,
    query_time: Tensor | None = None,
    prefix: int = 0,
    candidates: list[int] | None = None,
) -> tuple[list[float], list[float]]:
    """What each element gets: the number of its position, and that of its age's bucket."""
    encoder = PositionalEncoder(config, width=2, prefix=prefix)
    for name, weight in encoder.named_parameters():
        column = 0 if "position" in name else 1
        weight.data.zero_()[:, column] = torch.arange(float(len(weight)))
    sequence = EncoderSequence(
        values=torch.zeros(len(timestamps), 2),
        timestamps=torch.tensor(timestamps),
        layout=Layout.of(torch.tensor(lengths), total=len(timestamps)),
        candidates=Layout.of(torch.tensor(candidates), total=sum(candidates)) if candidates else None,
    )
    rows = encoder(sequence, query_time)
    return rows[:, 0].tolist(), rows[:, 1].tolist()


def test_positions_count_back_from_the_newest_event() -> None:
    positions, _ = added([0.0] * 5, [3, 2], config=config())
    assert positions == [3, 2, 1, 2, 1]


def test_the_context_keeps_the_first_positions() -> None:
    positions, _ = added([0.0] * 4, [4], prefix=2, config=config())
    assert positions == [0, 1, 4, 3]


def test_positions_end_at_the_last_bucket() -> None:
    positions, _ = added([0.0] * 8, [8], config=config())
    assert positions == [5, 5, 5, 5, 4, 3, 2, 1]


def test_positions_count_from_the_start_without_time_encoding() -> None:
    positions, ages = added([9.0] * 3, [3], config=config(use_time_encoding=False))
    assert (positions, ages) == ([0, 1, 2], [0, 0, 0])


@pytest.mark.parametrize(
    ("use_time_encoding", "expected"), [(True, [2, 1, 0, 0, 0]), (False, [0, 1, 2, 2, 2])]
)
def test_candidates_are_all_at_one_position(use_time_encoding: bool, expected: list[int]) -> None:
    positions, _ = added([0.0] * 5, [5], candidates=[3], config=config(use_time_encoding=use_time_encoding))
    assert positions == expected


def test_ages_count_back_from_the_newest_event() -> None:
    _, ages = added([0.0, 300.0, 540.0], [3], config=config())
    assert ages == [3, 2, 0]  # square roots of 9, 4 and 0 minutes


def test_ages_count_back_from_the_query_where_it_has_a_time() -> None:
    _, ages = added([0.0, 960.0], [1, 1], query_time=torch.tensor([[960.0], [960.0]]), config=config())
    assert ages == [4, 0]


def test_ages_may_be_bucketed_by_logarithm() -> None:
    _, ages = added([0.0, 600.0], [2], config=config(log=True))
    assert ages == [6, 0]


@pytest.mark.parametrize("candidates", [None, [2, 0, 1]], ids=["history", "candidates"])
@pytest.mark.parametrize("query_time", [None, torch.full((3, 1), 9e5)], ids=["newest", "query time"])
@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("use_time_encoding", [True, False])
def test_a_kernel_encodes_alike(
    use_time_encoding: bool, log: bool, query_time: Tensor | None, candidates: list[int] | None
) -> None:
    torch.manual_seed(0)
    sequence = EncoderSequence(
        values=torch.randn(12, 4),
        timestamps=torch.randint(900_000, (12,)).float(),
        layout=Layout.of(torch.tensor([7, 0, 5]), total=12),
        candidates=Layout.of(torch.tensor(candidates), total=3) if candidates else None,
    )
    asked = config(use_time_encoding=use_time_encoding, log=log)
    weights = torch.randn(6, 4), torch.randn(101, 4) if use_time_encoding else None
    expected, encoded = (
        kind(asked, scale=2.0, prefix=1)(sequence, query_time, *weights)
        for kind in (PositionEncoding, TritonPositionEncoding)
    )
    assert torch.equal(encoded, expected)
