"""What is blessed, where rows come from, and releases that cannot be judged."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from exporter.config.evaluation import Evaluation
from exporter.declaration import InputDeclaration, TowerDeclaration
from exporter.dims.plan import DimPlan
from exporter.errors import InvalidSpec
from exporter.manifest import TowerEntry
from exporter.options.release_gate import ReleaseGate
from exporter.release.judge import is_blessed, judge_quality, judge_release, rows_uri_of
from exporter.release.releases import JudgedRelease, Side
from exporter.reports.release_report import Finding, ReleasedArtifacts, Verdict
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.spec import TowerName
from tests.jobs.factories import make_entry, make_manifest


def finding(verdict: Verdict) -> Finding:
    return Finding(measure="auc", verdict=verdict)


@pytest.mark.parametrize(
    ("verdict", "blessed", "with_untold"),
    [
        (Verdict.PASSED, True, True),
        (Verdict.NO_BASELINE, True, True),
        (Verdict.TOO_FEW, False, True),
        (Verdict.FAILED, False, False),
    ],
)
def test_what_failed_or_could_not_be_told_is_not_blessed(
    verdict: Verdict, blessed: bool, with_untold: bool
) -> None:
    findings = [finding(Verdict.PASSED), finding(verdict)]
    assert is_blessed(findings, ReleaseGate()) is blessed
    assert is_blessed(findings, ReleaseGate(bless_untold=True)) is with_untold


def test_rows_are_those_of_the_gate_or_of_the_config() -> None:
    evaluation = Evaluation(eval_input_path="eval.parquet", tasks=(), label="", item_id="")
    assert rows_uri_of(ReleaseGate(rows_uri="mine.parquet"), evaluation) == "mine.parquet"
    assert rows_uri_of(ReleaseGate(), evaluation) == "eval.parquet"
    nowhere = Evaluation(eval_input_path="", tasks=(), label="", item_id="")
    with pytest.raises(InvalidSpec, match="neither release_gate.rows_uri nor the config's eval_input_path"):
        rows_uri_of(ReleaseGate(), nowhere)


def test_a_release_that_is_not_there_is_not_blessed_and_says_why(tmp_path: Path) -> None:
    gone = ReleasedArtifacts(job_id="job1", towers={TowerName.MODEL: str(tmp_path / "nothing")})
    report = judge_release(gone, None, ReleaseGate(), config_text="", scratch=tmp_path)
    assert not report.blessed and report.job_id == "job1" and report.baseline is None
    assert report.failure.startswith("invalid_artifact: ") and "has no manifest.json" in report.failure
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def answered(folder: Path, entry: TowerEntry) -> JudgedRelease:
    """Return a release of one tower whose answers no labels are known of."""
    tower = DownloadedTower(
        manifest=make_manifest("job", entry),
        entry=entry,
        chain=(),
        features=(),
        plan=DimPlan(inputs=(), dims=()),
        root=Path(),
    )
    return JudgedRelease(
        candidate=Side(job_id="job", uris={}, towers={entry.name: tower}, folder=folder),
        baseline=Side(job_id="", uris={}, towers={}, folder=folder),
        evaluation=Evaluation(eval_input_path="", tasks=(), label="", item_id=""),
        gate=ReleaseGate(),
        rows_uri="",
        item_input_uri=None,
        scratch=folder,
    )


DECLARED = TowerDeclaration(inputs=(InputDeclaration(name="x", dtype="float32", shape=("batch", 2)),))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (make_entry(TowerName.MODEL), "the config names no task with a loss and a label"),
        (
            make_entry(TowerName.MODEL).model_copy(update={"declaration": DECLARED}),
            "a custom family says nothing of labels",
        ),
        (make_entry(TowerName.EMBEDDING), "what a tower embedding answers is not held against labels"),
        (make_entry(TowerName.USER), "hit rates need a user and an item tower"),
    ],
)
def test_quality_that_is_not_judged_is_said_and_blessed_only_where_that_is_asked_for(
    entry: TowerEntry, why: str, tmp_path: Path
) -> None:
    [(found, rows)] = judge_quality(answered(tmp_path, entry))
    assert (found.verdict, rows) == (Verdict.TOO_FEW, 0)
    assert found.detail.startswith("quality is not judged: ") and why in found.detail
    assert not is_blessed([found], ReleaseGate())
    assert is_blessed([found], ReleaseGate(bless_untold=True))


@pytest.mark.parametrize(
    "wrong", [{"k": ()}, {"k": (10, 10)}, {"latency_ratio": 1.0}, {"auc_drop": 0}, {"labels": {"": ""}}]
)
def test_settings_without_a_meaning_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ReleaseGate.model_validate(wrong)
