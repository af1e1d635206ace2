"""Verdicts: worse with confidence, as good, or too few rows to tell."""

import numpy as np
import pytest

from exporter.release.estimates import judge_chance, judge_rise
from exporter.reports.release_report import Verdict


@pytest.mark.parametrize(
    ("rise", "noise", "verdict"),
    [
        (0.0, 0.001, Verdict.PASSED),
        (-0.1, 0.001, Verdict.PASSED),
        (0.011, 0.001, Verdict.PASSED),  # more than is allowed, and within the noise of it
        (0.013, 0.001, Verdict.FAILED),
        (0.0, 0.008, Verdict.PASSED),
        (0.0, 0.009, Verdict.TOO_FEW),
        (0.1, 0.005, Verdict.FAILED),  # so bad that it shows through any noise
    ],
)
def test_a_release_fails_if_it_is_worse_with_confidence(rise: float, noise: float, verdict: Verdict) -> None:
    assert judge_rise(rise, noise, 0.01, units=1000) is verdict


def test_a_handful_of_rows_says_nothing() -> None:
    assert judge_rise(1.0, 0.0, 0.01, units=29) is Verdict.TOO_FEW
    assert judge_chance(1.0, 0.0, 0.5, 0.02, units=29) is Verdict.TOO_FEW


@pytest.mark.parametrize(
    ("value", "noise", "verdict"),
    [
        (0.6, 0.01, Verdict.PASSED),
        (0.5, 0.005, Verdict.FAILED),
        (0.4, 0.005, Verdict.FAILED),
        (0.51, 0.02, Verdict.TOO_FEW),
    ],
)
def test_a_model_must_know_more_than_nothing(value: float, noise: float, verdict: Verdict) -> None:
    assert judge_chance(value, noise, 0.5, 0.02, units=1000) is verdict


def test_equal_releases_do_not_fail_and_ones_twice_as_bad_as_allowed_do_not_pass() -> None:
    random = np.random.default_rng(0)
    for noise in (0.001, 0.004, 0.008):
        equal = [judge_rise(random.normal(0, noise), noise, 0.01, 1000) for _ in range(2000)]
        worse = [judge_rise(random.normal(0.02, noise), noise, 0.01, 1000) for _ in range(2000)]
        assert equal.count(Verdict.FAILED) <= 20
        assert worse.count(Verdict.PASSED) <= 2000 * 0.015
        assert worse.count(Verdict.FAILED) + worse.count(Verdict.TOO_FEW) >= 2000 * 0.985
