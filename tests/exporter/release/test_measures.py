"""Measures of ranking quality against plain formulas, and their noise against rows drawn again."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.release.estimates import Array, Estimate, noise_of
from exporter.release.measures import (
    auc,
    auc_by_group,
    calibration,
    calibration_error,
    grouped_auc,
    mean_error,
    normalised_entropy,
)

ROW = st.tuples(
    st.sampled_from([0.1, 0.2, 0.2001, 0.5, 0.9]), st.booleans(), st.sampled_from([0.5, 1.0, 3.0])
)
Rows = Sequence[tuple[float, bool, float]]


def arrays(rows: Rows) -> tuple[Array, Array, Array]:
    answers, labels, weights = zip(*rows, strict=True)
    return np.array(answers), np.array(labels, dtype=np.float64), np.array(weights)


def plain_auc(rows: Rows) -> float | None:
    """Compare every positive row with every negative one."""
    won = total = 0.0
    for answer, label, weight in rows:
        for other, other_label, other_weight in rows:
            if label and not other_label:
                total += weight * other_weight
                won += weight * other_weight * (1.0 if answer > other else 0.5 if answer == other else 0.0)
    return won / total if total else None


@settings(max_examples=200, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30))
def test_auc_is_the_share_of_pairs_in_order(rows: list[tuple[float, bool, float]]) -> None:
    found, plain = auc(*arrays(rows)), plain_auc(rows)
    assert (found is None) == (plain is None)
    if found is not None and plain is not None:
        assert found.value == pytest.approx(plain, abs=1e-12)
        assert found.influence.mean() == pytest.approx(0.0, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(ROW, st.integers(0, 4)), min_size=1, max_size=40))
def test_grouped_auc_is_the_plain_mean_over_groups_with_both_labels(
    rows: list[tuple[tuple[float, bool, float], int]],
) -> None:
    groups = np.array([group for _, group in rows])
    answers, labels, _ = arrays([row for row, _ in rows])
    unweighted = [
        plain_auc([(a, bool(y), 1.0) for a, y in zip(answers[groups == g], labels[groups == g], strict=True)])
        for g in np.unique(groups)
    ]
    known = [value for value in unweighted if value is not None]
    found = grouped_auc(answers, labels, groups)
    assert (found is None) == (not known)
    if found is not None:
        assert found.value == pytest.approx(sum(known) / len(known))
    by_group = auc_by_group(answers, labels, groups)
    assert by_group == pytest.approx([math.nan if v is None else v for v in unweighted], nan_ok=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30))
def test_entropy_and_calibration_are_their_formulas(rows: list[tuple[float, bool, float]]) -> None:
    total = sum(weight for *_, weight in rows)
    mean = sum(weight * label for _, label, weight in rows) / total
    entropy, calibrated = normalised_entropy(*arrays(rows)), calibration(*arrays(rows))
    assert (entropy is None) == (not 0 < mean < 1)
    assert (calibrated is None) == (mean == 0)
    if calibrated is not None:
        assert calibrated.value == pytest.approx(sum(a * w for a, _, w in rows) / total / mean)
    if entropy is not None:
        own = -sum(w * math.log(a if y else 1 - a) for a, y, w in rows) / total
        assert entropy.value == pytest.approx(
            own / -(mean * math.log(mean) + (1 - mean) * math.log(1 - mean))
        )


def test_an_answer_of_the_mean_label_has_entropy_one() -> None:
    labels = np.array([1.0, 0, 0, 0])
    found = normalised_entropy(np.full(4, 0.25), labels, np.ones(4))
    assert found is not None and found.value == pytest.approx(1.0)


def test_a_certain_answer_that_is_wrong_costs_what_torch_makes_it_cost() -> None:
    found = normalised_entropy(np.array([0.0, 1.0]), np.array([1.0, 0.0]), np.ones(2))
    assert found is not None and found.value == pytest.approx(100 / math.log(2))


def test_the_calibration_error_is_taken_tenth_by_tenth() -> None:
    answers = np.repeat([0.2, 0.8], 500)
    labels = np.r_[np.ones(200), np.zeros(300), np.ones(300), np.zeros(200)]  # 0.4 and 0.6 of them
    found = calibration_error(answers, labels, np.ones(1000))
    assert found is not None and found.value == pytest.approx(0.2 / 0.5)
    whole = calibration(answers, labels, np.ones(1000))
    assert whole is not None and whole.value == pytest.approx(1.0)


def drawn(rows: int, seed: int) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(seed)
    answers = random.beta(1, 3, size=rows)
    return answers, (random.random(rows) < answers).astype(np.float64), random.choice([1.0, 2.0], size=rows)


@pytest.mark.parametrize("measure", [auc, normalised_entropy, calibration])
def test_the_noise_is_the_spread_over_rows_drawn_again(measure: type) -> None:
    found: list[Estimate] = [measure(*drawn(1500, seed)) for seed in range(400)]
    spread = float(np.std([each.value for each in found]))
    stated = float(np.mean([noise_of(each.influence, None) for each in found]))
    assert stated == pytest.approx(spread, rel=0.12)


def test_rows_of_one_group_count_as_one() -> None:
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(200), 50)
    errors = random.normal(size=200)[groups] + 0.1 * random.normal(size=10_000)
    found = mean_error(errors, np.ones(10_000))
    assert noise_of(found.influence, groups) == pytest.approx(1 / math.sqrt(200), rel=0.15)
    assert noise_of(found.influence, None) < 0.3 * noise_of(found.influence, groups)
