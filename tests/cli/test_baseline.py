"""The baseline of `slipway export`, and the verdict that `slipway inspect` shows."""

from pathlib import Path

import pytest

from cli.main import main
from cli.options.baseline import find_context
from exporter.errors import InvalidArtifact, InvalidSpec
from exporter.options.release_gate import ReleaseGate
from exporter.reports.release_report import REPORT_NAME, ReleaseReport
from exporter.spec import TowerName
from jobs.control.baselines import NO_CONTEXT
from tests.jobs.factories import AS_GOOD, WORSE, make_entry, make_manifest, make_report, make_spec

GATED = make_spec(release_gate=ReleaseGate(rows_uri="/r.parquet"))


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    (tmp_path / "manifest.json").write_text(make_manifest("old", make_entry()).model_dump_json())
    return tmp_path


@pytest.mark.parametrize("name", ["", "/", "/manifest.json"])
def test_a_published_artifact_is_the_baseline(artifact: Path, name: str) -> None:
    found = find_context(GATED, f"{artifact}{name}").baseline
    assert found is not None
    assert (found.job_id, dict(found.towers)) == ("old", {TowerName.USER: str(artifact)})


def test_without_one_there_is_none() -> None:
    assert find_context(GATED, None) == NO_CONTEXT == find_context(make_spec(), None)


def test_what_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArtifact, match="is not an artifact"):
        find_context(GATED, str(tmp_path))


def test_a_baseline_that_nobody_would_read_is_refused(artifact: Path) -> None:
    with pytest.raises(InvalidSpec, match="of no use without a release gate"):
        find_context(make_spec(), str(artifact))


def test_jobs_are_not_known_here() -> None:
    named = make_spec(release_gate=ReleaseGate(rows_uri="/r.parquet", baseline="01jd6v7x4mzq3w8c5kftn2rbha"))
    with pytest.raises(InvalidSpec, match="knows no jobs") as refused:
        find_context(named, None)
    assert "--baseline" in refused.value.hint


def shown(artifact: Path, report: ReleaseReport, capsys: pytest.CaptureFixture[str]) -> str:
    (artifact / REPORT_NAME).write_text(report.model_dump_json())
    assert main(["inspect", "--full", str(artifact)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_inspect_shows_the_verdict_with_its_figures(
    artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = make_report(AS_GOOD, WORSE).model_copy(update={"job_id": "old"})
    text = shown(artifact, report, capsys)
    assert "release not blessed, judged against job 0 on 900 rows" in text
    assert "│ auc │ ctr │ 0.61 │ 0.7 │ 0.69 │ 900 │ failed │" in text


def test_inspect_shows_no_verdict_on_another_release(
    artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "blessed" not in shown(artifact, make_report(WORSE), capsys)
