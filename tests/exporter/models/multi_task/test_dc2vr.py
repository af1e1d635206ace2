"""dc2vr's compiled code takes other weights: a package computes its rotations when it is loaded."""

from pathlib import Path

import pytest
import torch

from exporter.aoti.compile import compile_code
from exporter.aoti.torch_loader import Package
from exporter.towers.split import split_tower
from exporter.trace.trace_tower import trace_tower
from tests.exporter.models.recorded import read_batch, recorded_tower, require_close

pytestmark = [pytest.mark.slow, pytest.mark.families]


def test_rotations_follow_the_weights(tmp_path: Path) -> None:
    sparse, dense = split_tower(recorded_tower("dc2vr", "model"), max_batch_size=64)
    with torch.no_grad():
        inputs = sparse.module(read_batch("dc2vr", "model__b7", "in"))
        program = trace_tower(dense, inputs, torch.device("cpu"))
        code = compile_code(program)
        first = dense.module(inputs)
        require_close(
            Package(code.assemble(program.state_dict, tmp_path / "first.pt2").path)(inputs), first, {}
        )
        state = {
            name: weight + 0.3 * torch.randn_like(weight).tril(-1) if name.endswith(".original") else weight
            for name, weight in program.state_dict.items()
        }
        second = program.module()
        second.load_state_dict(state)
        expected = second(inputs)
    assert float((expected["y_stay"] - first["y_stay"]).abs().max()) > 1e-2
    require_close(Package(code.assemble(state, tmp_path / "second.pt2").path)(inputs), expected, {})
