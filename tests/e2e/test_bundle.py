"""The bundle of a real failure, from a real rank to the API."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from exporter.spec import TowerName
from launcher.up import running_stack
from slipway.client import Client
from tests.service.requests import export_request

pytestmark = pytest.mark.slow


def test_a_tower_that_does_not_compile_leaves_what_was_compiled(tmp_path: Path) -> None:
    with running_stack(tmp_path / "data", environment={"CXX": "/bin/false"}) as stack:
        client = Client(stack.url)
        request = export_request(towers=["item"], output_uri=str(tmp_path / "out"))
        *_, job = client.events(client.submit(request).id)
        content = client.bundle(job.id, TowerName.ITEM)
    failure = job.towers[0].failure
    assert failure is not None and failure.code == "compile_failed"
    assert failure.bundle_url == f"/exports/{job.id}/bundle?tower=item"
    with zipfile.ZipFile(io.BytesIO(content)) as bundle:
        files = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert json.loads(files["failure.json"])["failure"]["code"] == "compile_failed"
    assert "ExportedProgram" in files["aoti_model_program.txt"] and "CompileFailed" in files["traceback.txt"]
    assert ".values: torch." in files["sizes.txt"] and "== item compile" in files["log.txt"]
    assert "in step compile" in json.loads(files["smallest.json"])["fails"]
    assert "class Smallest" in files["smallest.py"] and "smallest.py" in failure.report
    assert not (tmp_path / "out").exists()
