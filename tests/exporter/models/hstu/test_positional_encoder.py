"""Which position and which age an element gets."""

import pytest
import torch

from exporter.config.hstu import PositionalEncoderConfig
from exporter.models.hstu.positional_encoder import PositionalEncoder
from exporter.models.jagged import Layout


@pytest.fixture
def added():
    """What is added to zeros: the position's number first, the age bucket's second."""

    def added(timestamps, lengths, *, query_time=None, prefix=0, **options):
        config = PositionalEncoderConfig(num_position_buckets=6, num_time_buckets=100, **options)
        encoder = PositionalEncoder(config, width=2, prefix=prefix)
        for name, weight in encoder.named_parameters():
            column = 0 if "position" in name else 1
            weight.data.zero_()[:, column] = torch.arange(float(len(weight)))
        layout = Layout.of(torch.tensor(lengths), total=len(timestamps))
        values = torch.zeros(len(timestamps), 2)
        return encoder(values, torch.tensor(timestamps), layout, query_time).T.tolist()

    return added


def test_positions_count_back_from_the_newest_event(added):
    positions, _ = added([0.0] * 5, [3, 2], use_time_encoding=True)
    assert positions == [3, 2, 1, 2, 1]


def test_the_context_keeps_the_first_positions(added):
    positions, _ = added([0.0] * 4, [4], prefix=2, use_time_encoding=True)
    assert positions == [0, 1, 4, 3]


def test_positions_end_at_the_last_bucket(added):
    positions, _ = added([0.0] * 8, [8], use_time_encoding=True)
    assert positions == [5, 5, 5, 5, 4, 3, 2, 1]


def test_positions_count_from_the_start_without_time_encoding(added):
    positions, ages = added([9.0] * 3, [3])
    assert (positions, ages) == ([0, 1, 2], [0, 0, 0])


def test_ages_count_back_from_the_newest_event(added):
    _, ages = added([0.0, 300.0, 540.0], [3], use_time_encoding=True)
    assert ages == [3, 2, 0]  # square roots of 9, 4 and 0 minutes


def test_ages_count_back_from_the_query_where_it_has_a_time(added):
    _, ages = added([0.0, 960.0], [1, 1], query_time=torch.tensor([[960.0], [960.0]]), use_time_encoding=True)
    assert ages == [4, 0]


def test_ages_may_be_bucketed_by_logarithm(added):
    _, ages = added(
        [0.0, 600.0], [2], use_time_encoding=True, time_bucket_fn="log", time_bucket_increments=1.0
    )
    assert ages == [6, 0]
