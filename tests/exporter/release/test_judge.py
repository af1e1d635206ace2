"""What is blessed, where rows come from, and releases that cannot be judged."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from exporter.config.evaluation import Evaluation
from exporter.errors import InvalidSpec
from exporter.options.release_gate import ReleaseGate
from exporter.release.judge import is_blessed, judge_release, rows_uri_of
from exporter.reports.release_report import Finding, ReleasedArtifacts, Verdict
from exporter.spec import TowerName


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


@pytest.mark.parametrize(
    "wrong", [{"k": ()}, {"k": (10, 10)}, {"latency_ratio": 1.0}, {"auc_drop": 0}, {"labels": {"": ""}}]
)
def test_settings_without_a_meaning_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ReleaseGate.model_validate(wrong)
