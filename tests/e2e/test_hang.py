"""A tower whose trace never ends, through the whole pipeline: ended, explained, and cut to its operator."""

import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from exporter.spec import TowerName
from launcher.up import running_stack
from slipway.client import Client, ExportRequest
from tests.installed_families import Install

pytestmark = [pytest.mark.slow, pytest.mark.planted]

ROOT = Path(__file__).parents[2]
LIMIT_S = 40  # of a stage: the others need to end in time on a busy machine
HANGS = """
import torch
from exporter.families.family import Family, InputDeclaration, TowerDeclaration
from tests.planted import ops
from torch import nn

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(2, 1)

    def forward(self, inputs):
        score = self.scale(inputs["x"]).relu() + 1
        return {"score": torch.ops.planted.untraceable(score).squeeze(1)}

class Hangs(Family):
    def towers(self, config):
        return [TowerDeclaration(inputs=[InputDeclaration(name="x", dtype="float32", shape=("batch", 2))])]

    def build(self, config, tower):
        return Scaled()
"""


def test_a_trace_that_hangs_is_ended_and_cut_to_its_operator(tmp_path: Path, install: Install) -> None:
    name = install("hanging_family", HANGS, offers="Hangs")
    (tmp_path / "config.json").write_text("{}")
    save_file({"scale.weight": torch.ones(1, 2), "scale.bias": torch.zeros(1)}, tmp_path / "w.safetensors")
    pq.write_table(pa.table({"x": [[0.5, 1.0]] * 40}), tmp_path / "rows.parquet")
    request = ExportRequest(
        family=name,
        config="{}",
        checkpoint_uri=str(tmp_path / "w.safetensors"),
        sample_input_uri=str(tmp_path / "rows.parquet"),
        output_uri=str(tmp_path / "out"),
    )
    environment = {
        "PYTHONPATH": f"{ROOT}:{tmp_path / 'site'}",
        "SLIPWAY_FAMILIES": name,
        "SLIPWAY_STAGE_TIME_LIMIT": str(LIMIT_S),
    }
    with running_stack(tmp_path / "data", environment=environment) as stack:
        client = Client(stack.url)
        *_, job = client.events(client.submit(request).id)
        failure = job.towers[0].failure
        assert failure is not None and failure.code == "stage_timed_out"
        with zipfile.ZipFile(io.BytesIO(client.bundle(job.id, TowerName.MODEL))) as bundle:
            files = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert "stage trace took more than 40 s" in failure.message
    assert "the last graph node was untraceable = planted.untraceable.default" in failure.message
    assert "ops.py" in failure.where and "in forward" in failure.report
    assert failure.bundle_url == f"/exports/{job.id}/bundle?tower=model"
    assert json.loads(files["smallest.json"])["operators"] == ["planted.untraceable.default"]
    assert json.loads(files["smallest.json"])["fails"] == "hang in step trace"
    assert "torch.ops.planted.untraceable.default(" in files["smallest.py"]
