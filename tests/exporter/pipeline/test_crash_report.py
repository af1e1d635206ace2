"""A tower whose process dies leaves the smallest graph that kills it."""

import json
from pathlib import Path

import pytest

from exporter.attempt.attempt import DIAGNOSTICS, Attempt
from exporter.pipeline.export import export_in_own_process
from exporter.spec import ExportSpec
from exporter.towers.plan import plan_export
from tests.exporter.stage_events import ignore_stages
from tests.installed_families import Install
from tests.planted import family

pytestmark = [pytest.mark.slow, pytest.mark.planted]

ROOT = Path(__file__).parents[3]


def test_a_crash_is_told_with_its_stage_and_cut_to_its_operator(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = install("deadly_family", family.source("deadly"), offers="Planted")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path / 'site'}")  # for the processes that try scripts
    spec = ExportSpec.model_validate(family.request(name, tmp_path))
    attempt = Attempt(job_id="job", spec=spec, workspace=tmp_path, families=(name,))
    [planned] = plan_export(spec, "{}", families=(name,))
    failure = export_in_own_process(attempt, "{}", ignore_stages, planned).failure
    assert failure is not None and failure.code == "tower_died"
    assert "was killed by SIGSEGV in stage trace; the last graph node was" in failure.message
    assert "(signal 11 in step trace) has 1 of" in failure.report
    found = json.loads((tmp_path / "model" / DIAGNOSTICS / "smallest.json").read_text())
    assert found["operators"] == ["planted.deadly.default"]
