"""Slipway as the peer bench runs it: calls of a real package, on the bench's own batches."""

from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks.contest.contract import Contender, LatencyOrder
from benchmarks.contest.models import ContestModel
from benchmarks.peer import OURS
from tests.e2e.conftest import Export

pytestmark = pytest.mark.slow


def test_a_line_is_printed_for_each_size_of_batch(artifact_of: Export, tmp_path: Path) -> None:
    """The names are those of the recorded outputs, and probabilities are such."""
    batches = ContestModel.of("dlrm_hstu", tmp_path).write_batches((1, 8))
    ours = Contender(name="slipway", command=OURS, limit=timedelta(minutes=2), scratch=tmp_path / "scratch")
    order = LatencyOrder(
        output=Path(artifact_of("dlrm_hstu")).parent,
        tower="model",
        batches=batches["model"],
        sizes=(1, 8),
        seconds=0.05,
    )
    times = ours.time_batches(order, threads=1)
    assert times.keys() == {1, 8}
    assert {name for name in times[8].outputs if name.startswith("probs")} == {
        "probs_is_click",
        "probs_is_like",
        "probs1_is_like",
    }
    assert all(0 < value < 1 for name, value in times[8].outputs.items() if name.startswith("probs"))
