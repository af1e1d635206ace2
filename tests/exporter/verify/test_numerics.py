"""What counts as close, and what never does."""

import pytest
import torch

from exporter.verify.numerics import FP32_TOLERANCE, compare, compare_runs


def test_equal_outputs_differ_by_nothing() -> None:
    difference = compare({"y": torch.ones(3)}, {"y": torch.ones(3)})
    assert difference.within(0.0)


def test_the_tolerance_is_a_fraction_of_the_outputs_scale() -> None:
    reference = {"y": torch.tensor([1000.0, 0.0])}
    assert compare(reference, {"y": torch.tensor([1000.0, 0.009])}).within(FP32_TOLERANCE)
    assert not compare(reference, {"y": torch.tensor([1000.0, 0.011])}).within(FP32_TOLERANCE)


def test_the_worst_output_is_the_one_reported() -> None:
    reference = {"big": torch.tensor([1000.0]), "small": torch.tensor([1.0])}
    actual = {"big": torch.tensor([1000.001]), "small": torch.tensor([1.01])}
    assert compare(reference, actual).output == "small"


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_never_passes(poison: float) -> None:
    poisoned = {"y": torch.tensor([poison, 1.0])}
    assert not compare(poisoned, poisoned).within(1.0)
    assert not compare({"y": torch.ones(2)}, poisoned).within(1.0)


def test_outputs_of_zero_must_be_zero() -> None:
    assert compare({"y": torch.zeros(2)}, {"y": torch.zeros(2)}).within(FP32_TOLERANCE)
    assert not compare({"y": torch.zeros(2)}, {"y": torch.full((2,), 1e-9)}).within(FP32_TOLERANCE)


@pytest.mark.parametrize(
    "actual",
    [{}, {"z": torch.ones(3)}, {"y": torch.ones(4)}, {"y": torch.ones(3, 1)}, {"y": torch.ones(3).long()}],
    ids=["missing", "another name", "another size", "another rank", "another dtype"],
)
def test_outputs_of_another_shape_never_pass(actual: dict[str, torch.Tensor]) -> None:
    assert not compare({"y": torch.ones(3)}, actual).within(1.0)


def test_a_small_number_is_held_against_what_is_usual() -> None:
    reference, actual = {"y": torch.tensor([4e-4])}, {"y": torch.tensor([4e-4 + 8e-9])}
    assert not compare(reference, actual).within(FP32_TOLERANCE)
    assert compare(reference, actual, usual={"y": 0.05}).within(FP32_TOLERANCE)
    assert not compare(reference, actual, usual={"y": 5e-4}).within(FP32_TOLERANCE)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_two_runs_agree_only_where_the_same_number_is_not_finite(poison: float) -> None:
    run = {"y": torch.tensor([poison, 1.0])}
    assert compare_runs(run, run).within(FP32_TOLERANCE)
    assert not compare_runs(run, {"y": torch.tensor([poison, 1.1])}).within(FP32_TOLERANCE)
    for moved in ([1.0, 1.0], [poison, poison], [1.0, poison], [-float("inf"), 1.0]):
        assert compare_runs(run, {"y": torch.tensor(moved)}).problem == "holds NaN or infinity"
    assert "expected" in compare_runs(run, {"y": torch.ones(3)}).problem


def test_integers_must_be_equal_whatever_the_scale_and_the_tolerance() -> None:
    reference = {"codes": torch.tensor([[200_000, 7]])}
    assert compare(reference, {"codes": torch.tensor([[200_000, 7]])}).within(0.0)
    beside = compare(reference, {"codes": torch.tensor([[200_001, 7]])}, usual={"codes": 1e9})
    assert not beside.within(1.0)
    assert beside.problem == "1 of 2 integers differ"
