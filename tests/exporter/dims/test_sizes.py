"""Concrete sizes keep to the plan's bounds and never coincide."""

import pytest

from exporter.dims.plan import BATCH, DimPlan, DynamicDim, TensorInput
from exporter.dims.sizes import sizes_of, trace_sizes, verification_batch_sizes
from exporter.errors import InvalidSpec


def plan_of(bounds: dict[str, tuple[int, int | None]], *, width: int = 1) -> DimPlan:
    return DimPlan(
        inputs=tuple(TensorInput(name=name, dtype="float32", shape=(name, width)) for name in bounds),
        dims=tuple(
            DynamicDim(name=name, low=low, high=high, reason="") for name, (low, high) in bounds.items()
        ),
    )


@pytest.mark.parametrize(
    "plan",
    [
        plan_of({"batch": (1, 512), "seq": (0, 49152), "tags": (0, None), "more_tags": (0, None)}),
        plan_of({"batch": (1, 512), "seq": (0, 49152)}, width=5),
        plan_of({"batch": (1, 2), "seq": (0, 3)}),
        plan_of({"batch": (1, 4), "seq": (0, 4), "other": (0, 4)}),
        plan_of({"batch": (1, 512)} | {f"values_{i}": (0, None) for i in range(40)}),
    ],
)
def test_traced_sizes_are_at_least_2_and_all_different(plan: DimPlan) -> None:
    sizes = trace_sizes(plan)
    assert min(sizes.values()) >= 2
    assert len(set(sizes.values())) == len(plan.dims)
    assert all(dim.high is None or sizes[dim.name] <= dim.high for dim in plan.dims)


def test_traced_sizes_avoid_fixed_axes() -> None:
    assert 5 not in trace_sizes(plan_of({"batch": (1, 512), "seq": (0, 49152)}, width=5)).values()


def test_bounds_too_tight_to_tell_dims_apart_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="has no size of its own"):
        trace_sizes(plan_of({"batch": (1, 2), "seq": (0, 2)}))


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [(512, (1, 2, 3, 7, 32, 512)), (32, (1, 2, 3, 7, 32)), (5, (1, 2, 3, 5)), (2, (1, 2))],
)
def test_verifies_small_batches_and_the_largest(largest: int, sizes: tuple[int, ...]) -> None:
    assert verification_batch_sizes(plan_of({"batch": (1, largest)})) == sizes


def test_sizes_are_read_off_the_inputs() -> None:
    plan = plan_of({"batch": (1, 8), "seq": (0, 16)})
    assert sizes_of(plan, {"batch": (3, 1), "seq": (7, 1)}) == {BATCH: 3, "seq": 7}
