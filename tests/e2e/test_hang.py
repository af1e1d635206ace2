"""A tower whose trace never ends, through the whole pipeline: ended, explained, and cut to its operator."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from exporter.spec import TowerName
from launcher.up import running_stack
from slipway.client import Client
from tests.installed_families import Install
from tests.planted import family

pytestmark = [pytest.mark.slow, pytest.mark.planted]

ROOT = Path(__file__).parents[2]
LIMIT_S = 40  # of a stage: the others need to end in time on a busy machine


def test_a_trace_that_hangs_is_ended_and_cut_to_its_operator(tmp_path: Path, install: Install) -> None:
    name = install("hanging_family", family.source("untraceable"), offers="Planted")
    environment = {
        "PYTHONPATH": f"{ROOT}:{tmp_path / 'site'}",
        "SLIPWAY_FAMILIES": name,
        "SLIPWAY_STAGE_TIME_LIMIT": str(LIMIT_S),
    }
    with running_stack(tmp_path / "data", environment=environment) as stack:
        client = Client(stack.url)
        request = family.request(name, tmp_path)
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
