"""Outputs of two towers on the same rows, against plain formulas."""

import numpy as np
import pytest
import torch

from exporter.comparison.output_diff import compare_output, compare_outputs

GENERATOR = torch.Generator().manual_seed(3)
OLD = torch.randn(200, generator=GENERATOR)
NEW = OLD + torch.randn(200, generator=GENERATOR) / 10


def test_numbers_are_compared_as_by_numpy() -> None:
    diff = compare_output("y", OLD, NEW)
    a, b = OLD.double().numpy(), NEW.double().numpy()
    assert diff.mean_difference == pytest.approx(np.abs(a - b).mean())
    assert diff.largest_difference == pytest.approx(np.abs(a - b).max())
    assert diff.correlation == pytest.approx(np.corrcoef(a, b)[0, 1])
    ranks = [side.argsort().argsort().astype(np.float64) for side in (a, b)]
    assert diff.rank_correlation == pytest.approx(np.corrcoef(ranks[0], ranks[1])[0, 1])
    assert diff.new_quantiles == pytest.approx(np.quantile(b, diff.shares))
    assert diff.histogram is not None
    assert (sum(diff.histogram.old), sum(diff.histogram.new), diff.rows_changed) == (200, 200, 200)


def test_equal_values_share_a_rank() -> None:
    ties = compare_output("y", torch.tensor([1.0, 1, 2, 3]), torch.tensor([5.0, 5, 6, 7]))
    assert ties.rank_correlation == pytest.approx(1)


def test_vectors_are_compared_by_their_cosine() -> None:
    old = torch.tensor([[1.0, 0], [0, 1], [0, 0]])
    diff = compare_output("v", old, torch.tensor([[0.0, 2], [0, 3], [0, 0]]))
    assert (diff.width, diff.rows_changed, diff.correlation) == (2, 2, None)
    assert diff.mean_cosine == pytest.approx(2 / 3)
    assert diff.least_cosine == 0


def test_a_constant_output_has_no_correlation() -> None:
    diff = compare_output("y", torch.ones(5), torch.ones(5))
    assert (diff.rows_changed, diff.correlation, diff.largest_difference) == (0, None, 0)


def test_rows_that_are_not_finite_are_counted_and_left_out() -> None:
    diff = compare_output("y", torch.tensor([1.0, 2, torch.nan]), torch.tensor([1.0, torch.inf, torch.nan]))
    assert (diff.rows_not_finite, diff.rows_changed, diff.largest_difference) == (2, 1, 0)
    assert "NaN" not in diff.model_dump_json()


def test_outputs_of_one_side_and_of_other_shapes_are_said_as_such() -> None:
    found = compare_outputs({"a": OLD, "gone": OLD, "s": OLD}, {"a": OLD, "fresh": NEW, "s": NEW[:5]})
    notes = {diff.name: diff.note for diff in found}
    assert notes["gone"] == "only the old tower has it"
    assert notes["fresh"] == "only the new tower has it"
    assert notes["s"] == "the shapes [200] and [5] cannot be compared"


def test_no_rows_at_all_are_no_difference() -> None:
    assert compare_output("y", torch.empty(0), torch.empty(0)).rows_changed == 0
