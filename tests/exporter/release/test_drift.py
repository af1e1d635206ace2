"""Drift between the rows of two releases: nulls, unknown ids, distributions of values and lengths."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from exporter.errors import InvalidSpec
from exporter.options.release_gate import ReleaseGate
from exporter.release.drift import describe_sample, judge_samples, stability_index
from exporter.release.labelled_rows import RowCounts, Sample
from exporter.reports.input_statistics import FeatureStatistics, InputStatistics, ValueKind
from exporter.reports.release_report import Finding, Verdict

GATE = ReleaseGate()


def sample(values: NDArray[np.generic], lengths: NDArray[np.int64] | None = None) -> Sample:
    made = Sample(is_ids=np.issubdtype(values.dtype, np.integer))
    made.add_values(torch.from_numpy(values))
    made.add_lengths(torch.from_numpy(np.ones(len(values), dtype=np.int64) if lengths is None else lengths))
    return made


def ids(rows: int, seed: int, *, rest: int = 0) -> NDArray[np.int64]:
    """Draw popular ids, and a share of the rows with ids from `rest` on."""
    drawn = np.random.default_rng(seed).zipf(1.5, size=rows).clip(max=5000)
    drawn[: rest * rows // 100] += 10_000
    return drawn.astype(np.int64)


def numbers(rows: int, seed: int, *, shift: float = 0.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).normal(size=rows) + shift).astype(np.float32)


def judged(
    before: Sample, now: Sample, counts: RowCounts | None = None, gate: ReleaseGate = GATE
) -> Mapping[str, Finding]:
    rows = now.rows
    of_now = counts or RowCounts(rows=rows)
    of_before = RowCounts(rows=before.rows)
    then = InputStatistics(rows=of_before.rows, features={"f": describe_sample("f", before, of_before)})
    return {each.measure: each for each in judge_samples({"f": now}, of_now, then, gate)}


@pytest.mark.parametrize("draw", [ids, numbers])
def test_rows_of_another_day_have_not_drifted(draw: type) -> None:
    findings = judged(sample(draw(5000, seed=1)), sample(draw(5000, seed=2)))
    assert {each.verdict for each in findings.values()} == {Verdict.PASSED}


@pytest.mark.parametrize("rows", [300, 500, 1000])
def test_rare_ids_of_another_day_are_no_drift(rows: int) -> None:
    before, now = (np.random.default_rng(seed).integers(0, 1000, size=rows) for seed in (1, 2))
    assert judged(sample(before), sample(now))["psi"].verdict is Verdict.PASSED


def test_one_of_two_values_drawn_more_often_in_few_rows_is_not_refused_as_drift() -> None:
    before, now = (np.arange(40, dtype=np.int64) < ones for ones in (12, 24))
    assert judged(sample(before.astype(np.int64)), sample(now.astype(np.int64)))["psi"].verdict in (
        Verdict.TOO_FEW,
        Verdict.PASSED,
    )


@pytest.mark.parametrize(
    ("before", "now"),
    [(ids(5000, 1), ids(5000, 2, rest=40)), (numbers(5000, 1), numbers(5000, 2, shift=0.7))],
)
def test_values_that_are_others_are_found(before: NDArray[np.generic], now: NDArray[np.generic]) -> None:
    assert judged(sample(before), sample(now))["psi"].verdict is Verdict.FAILED


def test_shorter_histories_are_found() -> None:
    random = np.random.default_rng(0)
    long, short = (sample(ids(4000, 1), random.poisson(mean, size=4000)) for mean in (12, 2))
    assert judged(long, short)["psi_of_lengths"].verdict is Verdict.FAILED
    assert judged(long, long)["psi_of_lengths"].verdict is Verdict.PASSED


def test_a_feature_without_lengths_is_judged_by_its_values() -> None:
    before, now = Sample(is_ids=False), Sample(is_ids=False)
    before.add_values(torch.from_numpy(numbers(5000, 1)))
    now.add_values(torch.from_numpy(numbers(5000, 2)))
    findings = judged(before, now)
    assert findings["psi"].verdict is Verdict.PASSED and "psi_of_lengths" not in findings


def test_few_rows_say_nothing_of_a_distribution() -> None:
    assert judged(sample(ids(100, 1)), sample(ids(100, 2)))["psi"].verdict is Verdict.TOO_FEW


def test_nulls_and_unknown_ids_that_become_more_are_found() -> None:
    counts = RowCounts(rows=5000)
    counts.nulls["f"], counts.unknown["f"], counts.ids["f"] = 600, 300, 5000
    findings = judged(sample(ids(5000, 1)), sample(ids(5000, 2)), counts)
    assert findings["nulls"].verdict is Verdict.FAILED
    assert (findings["unknown_ids"].verdict, findings["unknown_ids"].value) == (Verdict.FAILED, 0.06)


def test_unknown_ids_are_wrong_without_a_baseline_too() -> None:
    counts = RowCounts(rows=5000)
    counts.unknown["f"], counts.ids["f"] = 300, 5000
    findings = {e.measure: e for e in judge_samples({"f": sample(ids(5000, 1))}, counts, None, GATE)}
    assert findings["unknown_ids"].verdict is Verdict.FAILED
    assert findings["drift"].verdict is Verdict.NO_BASELINE


@pytest.mark.parametrize("scale", [1, 1000])
def test_times_are_expected_to_pass(scale: int) -> None:
    first = np.arange(1_700_000_000, 1_700_005_000, dtype=np.int64) * scale
    findings = judged(sample(first), sample(first + 86_400 * scale))
    assert describe_sample("f", sample(first), RowCounts(rows=5000)).kind is ValueKind.TIMES
    assert findings["psi"].verdict is Verdict.NO_BASELINE and "times" in findings["psi"].detail


def sessions(rows: int, first: int) -> Sample:
    """Return ids of sessions that follow each other, each of 50 rows."""
    return sample(first + np.arange(rows, dtype=np.int64) // 50)


def test_ids_that_turn_over_within_the_baselines_rows_are_expected_to_be_others() -> None:
    assert describe_sample("f", sessions(5000, 0), RowCounts(rows=5000)).turnover > 1
    finding = judged(sessions(5000, 0), sessions(5000, 100))["psi"]
    assert finding.verdict is Verdict.NO_BASELINE and "later rows of the baseline" in finding.detail


def test_ids_that_begin_to_turn_over_are_found() -> None:
    assert judged(sample(ids(5000, 1)), sessions(5000, 0))["psi"].verdict is Verdict.FAILED


@pytest.mark.parametrize("rows", [100, 1000, 20_000])
def test_ids_in_any_order_do_not_turn_over(rows: int) -> None:
    for seed in range(20):
        drawn = sample(ids(rows, seed))
        assert describe_sample("f", drawn, RowCounts(rows=rows)).turnover < 0.05
    few = np.sort(ids(rows, 0) % 20)  # the later half has none of the ids of the earlier one
    assert describe_sample("f", sample(few), RowCounts(rows=rows)).turnover == 0


def test_a_feature_that_the_gate_exempts_has_no_index() -> None:
    before, now = sample(ids(5000, 1)), sample(ids(5000, 2, rest=40))
    exempt = judged(before, now, gate=ReleaseGate(drift_exempt=("f",)))
    assert exempt["psi"].verdict is Verdict.NO_BASELINE and "drift_exempt" in exempt["psi"].detail
    assert exempt["nulls"].verdict is Verdict.PASSED
    with pytest.raises(InvalidSpec, match="drift_exempt names feature 'g'") as refused:
        judged(before, now, gate=ReleaseGate(drift_exempt=("g",)))
    assert refused.value.where == "release_gate.drift_exempt" and refused.value.hint == "its features are f"


def test_statistics_of_earlier_versions_are_read() -> None:
    kept = describe_sample("f", sample(ids(50, 1)), RowCounts(rows=50)).model_dump(exclude={"turnover"})
    assert FeatureStatistics.model_validate(kept).turnover == 0


def test_the_index_is_its_formula() -> None:
    expected = (0.6 - 0.5) * np.log(0.6 / 0.5) + (0.4 - 0.5) * np.log(0.4 / 0.5)
    assert stability_index([0.6, 0.4], [0.5, 0.5]) == pytest.approx(expected)
    assert stability_index([1.0, 0.0], [0.5, 0.5]) > 4  # an empty bin is finite
