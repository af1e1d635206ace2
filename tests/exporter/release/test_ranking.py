"""Findings on the answers of a task: dead, wrong or without a baseline, and labels that do not fit."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from exporter.config.evaluation import EvaluatedTask, TaskKind
from exporter.errors import InvalidRows
from exporter.options.release_gate import ReleaseGate
from exporter.release.labelled_rows import LabelledBatch
from exporter.release.ranking import TaskAnswers
from exporter.release.scoring import ScoredBatch
from exporter.reports.release_report import Finding, Verdict

ROWS = 4000
RANDOM = np.random.default_rng(0)
TRUE = RANDOM.beta(1, 2, size=ROWS).astype(np.float32)
CLICKS = (RANDOM.random(ROWS) < TRUE).astype(np.int64)
Answers = NDArray[np.float32]


def gathered(kind: TaskKind = TaskKind.BINARY, bitmask: int = 0) -> TaskAnswers:
    task = EvaluatedTask(name="", kind=kind, output="probs", label="click", bitmask=bitmask)
    return TaskAnswers(task=task, gate=ReleaseGate(), has_baseline=True)


def scored(new: Answers, old: Answers | None, labels: object = CLICKS) -> ScoredBatch:
    rows = LabelledBatch(where="rows.parquet", first_row=0, table=pa.table({"click": labels}), calls=())
    return ScoredBatch(rows=rows, answers=({"probs": new}, None if old is None else {"probs": old}))


def judged(task: TaskAnswers) -> dict[str, Finding]:
    return {finding.measure: finding for finding in task.judge()}


def test_as_good_a_release_passes_and_a_worse_one_fails() -> None:
    same, worse = gathered(), gathered()
    same.add(scored(TRUE, TRUE))
    worse.add(scored(RANDOM.permutation(TRUE), TRUE))
    assert {finding.verdict for finding in judged(same).values()} == {Verdict.PASSED}
    failed = {name for name, each in judged(worse).items() if each.verdict is Verdict.FAILED}
    assert {"auc", "normalized_entropy"} <= failed


@pytest.mark.parametrize(
    ("answers", "measure"),
    [(np.full(ROWS, 0.3, np.float32), "spread"), (np.where(CLICKS, np.nan, TRUE), "finite")],
)
def test_dead_answers_and_none_fail_without_a_baseline(answers: Answers, measure: str) -> None:
    task = gathered()
    task.add(scored(answers.astype(np.float32), None))
    assert judged(task)[measure].verdict is Verdict.FAILED


def test_a_baseline_that_ended_half_way_is_left_out() -> None:
    task = gathered()
    task.add(scored(TRUE, TRUE))
    task.add(scored(TRUE, None))
    task.has_baseline = False
    assert judged(task)["auc"].verdict is Verdict.NO_BASELINE


def test_a_baseline_whose_answers_are_not_finite_is_said_not_to_be_compared() -> None:
    task = gathered()
    task.add(scored(TRUE, np.where(np.arange(ROWS) == 7, np.nan, TRUE).astype(np.float32)))
    found = judged(task)
    assert (found["baseline"].verdict, found["auc"].verdict) == (Verdict.TOO_FEW, Verdict.NO_BASELINE)
    assert "1 of its answers are NaN" in found["baseline"].detail


def test_weights_of_another_number_than_labels_are_named() -> None:
    task = replace(gathered(), gate=ReleaseGate(weight_column="w"))
    batch = scored(TRUE, TRUE)
    table = batch.rows.table.append_column("w", pa.array([[1.0, 2.0]] * ROWS))
    with pytest.raises(InvalidRows, match=f"holds {ROWS} labels, for {2 * ROWS} weights of w"):
        task.add(replace(batch, rows=replace(batch.rows, table=table)))


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (np.full(ROWS, 2), "holds label 2, and probs is a probability"),
        ([[1, 0]] * ROWS, f"holds {2 * ROWS} labels in {ROWS} rows, for {ROWS} answers of probs"),
    ],
)
def test_labels_that_do_not_fit_are_named(labels: object, problem: str) -> None:
    with pytest.raises(InvalidRows, match=problem):
        gathered().add(scored(TRUE, TRUE, labels))


def test_a_bitmask_takes_its_bits() -> None:
    task = gathered(bitmask=2)
    task.add(scored(TRUE, TRUE, np.where(CLICKS, 3, 5)))  # 3 has the bit, 5 has not
    plain = gathered()
    plain.add(scored(TRUE, TRUE))
    assert judged(task)["auc"].value == judged(plain)["auc"].value


def test_numbers_are_judged_by_their_errors() -> None:
    task = gathered(TaskKind.NUMBER)
    task.add(scored(TRUE * 2, TRUE, TRUE.astype(np.float64) + RANDOM.normal(0, 0.05, ROWS)))
    findings = judged(task)
    assert findings["mae"].verdict is Verdict.FAILED and findings["mse"].verdict is Verdict.FAILED
