"""The lines that a job's page shows for loading a tower, run as they stand on a published artifact."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from exporter.spec import Mode, TowerName
from jobs.model import JobState
from service.dashboard.job.loading import load_lines
from slipway.loader import load
from tests.dashboard import sample
from tests.e2e.conftest import FIXTURES, Export
from tests.e2e.loaded_rows import tensors_of

pytestmark = pytest.mark.slow

BEFORE = 'import torch; inputs = torch.load("inputs.pt")\n'
AFTER = 'torch.save(outputs, "outputs.pt")\n'


@pytest.mark.parametrize("mode", Mode)
def test_a_tower_is_loaded_as_the_page_says(
    artifact_of: Export, two_stage_of: Export, tmp_path: Path, mode: Mode
) -> None:
    artifact = (artifact_of if mode is Mode.UNIFIED else two_stage_of)("hstu_match")
    job = sample.job(JobState.SUCCEEDED, sample.done(TowerName.ITEM))
    spec = job.spec.model_copy(update={"mode": mode})
    job = job.model_copy(update={"spec": spec, "manifest_uri": f"{artifact}/manifest.json"})
    (lines,) = load_lines(job)
    program, *arguments = shlex.split(lines.command)
    run_in(tmp_path, str(Path(sys.executable).parent / program), *arguments)
    rows = FIXTURES / "data" / "ref_items_b7.parquet"
    inputs = tensors_of(artifact, TowerName.ITEM, rows, tmp_path / "fetched")
    torch.save(inputs, tmp_path / "inputs.pt")
    run_in(tmp_path, sys.executable, "-c", f"{BEFORE}{lines.python}{AFTER}")
    outputs = torch.load(tmp_path / "outputs.pt")
    with load(tmp_path / "models" / job.id, "item") as tower:
        expected = tower(inputs)
    assert outputs.keys() == expected.keys() and outputs
    assert all(torch.equal(outputs[name], expected[name]) for name in expected)


def run_in(folder: Path, *command: str) -> None:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
