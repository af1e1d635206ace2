"""Position and time encoding: the kernel, interpreted, and the operator on a CPU."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from benchmarks.gpu.cases import references
from benchmarks.gpu.cases.case import BOUNDS
from exporter.config.hstu.encoder import PositionalEncoderConfig
from exporter.models.blocks.jagged import Layout, cumulative_offsets
from exporter.models.hstu.kernels.position import Times, encode_into, encode_positions
from exporter.models.hstu.positional_encoder import PositionalEncoder
from exporter.models.hstu.sequence import EncoderSequence
from tests.exporter.models.hstu.kernels.conftest import Interpreted

# A program encodes 16 elements.
EDGES = [0, 1, 15, 16, 17, 0, 40, 0]
CANDIDATES = [0, 1, 0, 5, 17, 0, 3, 0]
BUCKETS = 100

Error = Callable[[Tensor, list[int] | None, Times | None], float]


def times_of(width: int, *, log: bool = False, query: bool = False) -> Times:
    """Half of the ages are squares of whole minutes: on the edges of buckets."""
    whole = torch.randint(0, 120, (sum(EDGES),))
    ages = torch.where(whole % 2 == 0, whole * whole * 60, whole * 977)
    return Times(
        timestamps=(10_000_000 - ages).float(),
        query_time=torch.full((len(EDGES),), 1e7) if query else None,
        weight=torch.randn(BUCKETS + 1, width),
        increments=1.0 if log else 60.0,
        log=log,
    )


@pytest.fixture
def error(interpreted: Interpreted) -> Error:
    kernel = interpreted("position_kernel").encode_positions_kernel

    def error(values: Tensor, candidates: list[int] | None, times: Times | None) -> float:
        weight, offsets = torch.randn(23, values.shape[1]), cumulative_offsets(torch.tensor(EDGES))
        out = torch.full(values.shape, torch.nan)
        behind = None if candidates is None else torch.tensor(candidates)
        encode_into(out, values, offsets, behind, weight, times, scale=7.0, prefix=2, kernel=kernel)
        expected = references.add_positions(values, EDGES, candidates, weight, times, scale=7.0, prefix=2)
        return references.error_of(out, expected)

    return error


@pytest.mark.parametrize("candidates", [None, CANDIDATES])
@pytest.mark.parametrize("query", [False, True])
@pytest.mark.parametrize("log", [False, True])
def test_ages_and_positions(error: Error, candidates: list[int] | None, query: bool, log: bool) -> None:
    times = times_of(20, log=log, query=query)
    assert error(torch.randn(sum(EDGES), 20), candidates, times) < BOUNDS[torch.float32]


@pytest.mark.parametrize("candidates", [None, CANDIDATES])
@pytest.mark.parametrize("width", [1, 64, 300])
def test_positions_alone(error: Error, candidates: list[int] | None, width: int) -> None:
    assert error(torch.randn(sum(EDGES), width), candidates, None) < BOUNDS[torch.float32]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_values_may_be_narrower_than_weights(error: Error, dtype: torch.dtype) -> None:
    assert error(torch.randn(sum(EDGES), 20).to(dtype), CANDIDATES, times_of(20)) < BOUNDS[dtype]


def test_timestamps_may_be_integers(error: Error) -> None:
    floats = times_of(8)
    times = Times(
        timestamps=floats.timestamps.long(),
        query_time=None,
        weight=floats.weight,
        increments=60.0,
        log=False,
    )
    assert error(torch.randn(sum(EDGES), 8), None, times) < BOUNDS[torch.float32]


def test_every_edge_of_a_bucket(interpreted: Interpreted) -> None:
    """Roots of whole minutes: one rounding more or less, and some of them fall into the bucket before."""
    minutes = torch.arange(BUCKETS + 20) ** 2
    numbered = torch.arange(BUCKETS + 1.0).unsqueeze(1)
    times = Times(
        timestamps=(-60.0 * minutes).flip(0), query_time=None, weight=numbered, increments=60.0, log=False
    )
    out, zeros = torch.full((len(minutes), 1), torch.nan), torch.zeros(len(minutes), 1)
    offsets, kernel = torch.tensor([0, len(minutes)]), interpreted("position_kernel").encode_positions_kernel
    encode_into(out, zeros, offsets, None, torch.zeros(4, 1), times, scale=1.0, prefix=0, kernel=kernel)
    expected = references.add_positions(
        zeros, [len(minutes)], None, torch.zeros(4, 1), times, scale=1.0, prefix=0
    )
    assert out.flatten().tolist() == expected.flatten().tolist()


@pytest.mark.parametrize("candidates", [None, CANDIDATES])
@pytest.mark.parametrize("query", [False, True])
@pytest.mark.parametrize("time", ["none", "sqrt", "log"])
def test_on_a_cpu_it_is_the_encoder(candidates: list[int] | None, query: bool, time: str) -> None:
    config = PositionalEncoderConfig(
        num_position_buckets=23,
        num_time_buckets=BUCKETS,
        use_time_encoding=time != "none",
        time_bucket_fn=time,
        time_bucket_increments=60.0,
    )
    encoder, times = PositionalEncoder(config, width=20, prefix=2), times_of(20, query=query)
    values, lengths = torch.randn(sum(EDGES), 20), torch.tensor(EDGES)
    behind = None if candidates is None else torch.tensor(candidates)
    sequence = EncoderSequence(
        values=values,
        timestamps=times.timestamps,
        layout=Layout.of(lengths, total=sum(EDGES)),
        candidates=None if behind is None else Layout.of(behind, total=int(behind.sum())),
    )
    weights = dict(encoder.named_parameters())
    of_time = (
        times.timestamps,
        times.query_time,
        weights.get("_timestamp_embeddings_weight"),
        60.0,
        time == "log",
    )
    out = encode_positions(
        values,
        cumulative_offsets(lengths),
        behind,
        weights["_position_embeddings_weight"],
        20**0.5,
        2,
        *of_time,
    )
    assert torch.equal(out, encoder(sequence, times.query_time))


class Encoded(nn.Module):
    def forward(self, values_PD: Tensor, lengths_B: Tensor, times_P: Tensor) -> Tensor:
        weight, of_times, query_B = torch.ones(9, 3), torch.ones(5, 3), lengths_B * 60.0
        encoded: Tensor = encode_positions(
            values_PD,
            cumulative_offsets(lengths_B),
            lengths_B // 2,
            weight,
            2.0,
            1,
            times_P,
            query_B,
            of_times,
            60.0,
        )
        return encoded


def test_a_trace_keeps_both_sizes_open() -> None:
    elements = Dim("P")
    shapes = {"values_PD": {0: elements}, "lengths_B": {0: Dim("B")}, "times_P": {0: elements}}
    given = (torch.randn(9, 3), torch.tensor([4, 0, 5]), torch.zeros(9))
    program = export(Encoded(), given, dynamic_shapes=shapes).module()
    for lengths in ([2, 3, 3, 1], [6, 0]):
        values = torch.randn(sum(lengths), 3)
        out = program(values, torch.tensor(lengths), torch.zeros(sum(lengths)))
        assert torch.equal(out, values * 2 + 2)
