"""Codes of a package: exactly those of eager, but for ties, which rounding decides."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from exporter.aoti.compile import compile_code
from exporter.data.rows import NamedBatch, read_rows
from exporter.errors import VerificationFailed
from exporter.manifest import VerificationReport
from exporter.stages import no_progress
from exporter.towers.tower import Tower
from exporter.trace.trace_tower import trace_tower
from exporter.verify.cases import Cases
from exporter.verify.gate import verify_tower
from exporter.verify.reload import Link
from exporter.verify.runnable_tower import RunnableTower
from tests.exporter.models.recorded import load_recorded_weights, recorded_tower, rows_of, untrained

MODEL = "sid_rqkmeans"
BOOK = "_quantizer.layers.0.centroids"


@pytest.fixture(scope="module")
def tower() -> Tower:
    """The recorded model, in whose first codebook every row stands twice."""
    tower = untrained(recorded_tower(MODEL, "model").config)
    load_recorded_weights(tower.module, MODEL)
    rows = tower.module.get_buffer(BOOK)
    rows[5:] = rows[:5]
    return tower


@pytest.fixture(scope="module")
def inputs(tower: Tower) -> dict[str, Tensor]:
    return read_rows(str(rows_of(MODEL)), tower.config.pipeline.features).take(30).tensors(tower.plan)


def test_the_gate_takes_ties_and_no_other_codes(
    tower: Tower, inputs: dict[str, Tensor], tmp_path: Path
) -> None:
    code = compile_code(trace_tower(tower, inputs, torch.device("cpu")))
    rows = tower.module.get_buffer(BOOK)
    nearer = torch.cat([rows[:5] * (1 + 1e-6), rows[5:]])  # the second of two equal rows is nearer in most
    others = rows.flip(0)
    order = tuple(tensor.name for tensor in tower.plan.inputs)

    def verify(centroids: Tensor, name: str) -> VerificationReport:
        weights = {**tower.module.state_dict(), BOOK: centroids}
        package = code.assemble(weights, tmp_path / f"{name}.pt2").path
        runnable = RunnableTower(
            tower=tower,
            chain=[Link(package=package, order=order)],
            op_libraries=("fbgemm_gpu",),
            scratch=tmp_path,
            device=torch.device("cpu"),
        )
        batch = NamedBatch(name="batch_30", inputs=inputs)
        return verify_tower(runnable, Cases(must_agree=(batch,), must_be_refused=()), no_progress)

    moved = untrained(tower.config)
    moved.module.load_state_dict({**tower.module.state_dict(), BOOK: nearer})
    assert not torch.equal(moved.module(inputs)["codes"], tower.module(inputs)["codes"])
    assert verify(rows, "same").cases[0].passed
    assert verify(nearer, "ties").cases[0].passed
    with pytest.raises(VerificationFailed, match="integers differ"):
        verify(others, "others")
