"""Releases that cannot be judged, or not beside their baseline, say so and are not blessed."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from exporter.options.release_gate import ReleaseGate
from exporter.release.judge import judge_release
from exporter.reports.release_report import ReleasedArtifacts, ReleaseReport, Verdict
from exporter.spec import TowerName
from tests.planted.releases.conftest import Trade
from tests.planted.releases.variants import judge

pytestmark = pytest.mark.planted


def judged(trade: Trade, gate: ReleaseGate, folder: Path, *, baseline: Path | None = None) -> ReleaseReport:
    def released(artifact: Path) -> ReleasedArtifacts:
        return ReleasedArtifacts(job_id=artifact.name, towers={TowerName.MODEL: str(artifact)})

    return judge_release(
        released(trade.exported.artifact),
        None if baseline is None else released(baseline),
        gate,
        config_text=trade.exported.config,
        scratch=folder,
    )


def test_a_missing_label_is_named(ranking: Trade, tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    pq.write_table(pq.read_table(ranking.held_out(0)).drop_columns(["click"]), rows)
    report = judged(ranking, ReleaseGate(rows_uri=str(rows)), tmp_path)
    assert not report.blessed and "invalid_rows: " in report.failure and "'click'" in report.failure


def test_labels_of_a_task_that_there_is_not_are_refused(ranking: Trade, tmp_path: Path) -> None:
    gate = ReleaseGate(rows_uri=ranking.held_out(0), labels={"buy": "click"})
    report = judged(ranking, gate, tmp_path)
    assert "release_gate.labels names task 'buy'" in report.failure and not report.blessed


def test_labels_that_are_no_labels_are_refused(ranking: Trade, tmp_path: Path) -> None:
    gate = ReleaseGate(rows_uri=ranking.held_out(0), labels={"": "item_id"})
    report = judged(ranking, gate, tmp_path)
    assert "column item_id: holds label" in report.failure and not report.blessed


def test_few_rows_are_too_few_to_tell(ranking: Trade, tmp_path: Path) -> None:
    gate = ReleaseGate(rows_uri=ranking.held_out(0), max_rows=100)
    report = judged(ranking, gate, tmp_path, baseline=ranking.baseline())
    untold = {each.measure for each in report.findings if each.verdict is Verdict.TOO_FEW}
    assert report.rows == 100 and not report.blessed and untold == {"grouped_auc", "psi"}


def test_a_baseline_that_is_gone_is_said(ranking: Trade, tmp_path: Path) -> None:
    gate = ReleaseGate(rows_uri=ranking.held_out(0))
    report = judged(ranking, gate, tmp_path, baseline=tmp_path / "gone")
    [found] = [each for each in report.findings if each.measure == "baseline"]
    assert found.verdict is Verdict.TOO_FEW and "has no manifest.json" in found.detail
    assert not report.blessed and not report.failure and report.baseline == "gone"


def test_rows_without_chosen_items_are_refused(retrieval: Trade, tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    pq.write_table(pq.read_table(retrieval.held_out(0)).drop_columns(["item_id"]), rows)
    report = judge(retrieval.exported.artifact, None, str(rows), retrieval.exported, tmp_path)
    assert "invalid_rows: " in report.failure and "release_gate.item_column" in report.failure
    assert not report.blessed


def test_item_vectors_of_a_baseline_that_are_damaged_are_said(retrieval: Trade, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(retrieval.exported.artifact, damaged)
    [index] = damaged.rglob("*.faiss")
    index.write_bytes(index.read_bytes()[:-1])
    held_out = retrieval.held_out(0)
    report = judge(retrieval.exported.artifact, damaged, held_out, retrieval.exported, tmp_path)
    [found] = [each for each in report.findings if each.measure == "baseline"]
    assert found.verdict is Verdict.TOO_FEW and index.name in found.detail
    assert not report.failure and not report.blessed
    assert {each.measure for each in report.findings} > {"hit_rate@10", "above_chance", "size"}
