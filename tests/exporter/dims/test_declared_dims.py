"""A declaration's dims and inputs become the plan that is traced, verified and published."""

from exporter.declaration import TowerDeclaration
from exporter.dims.declared_dims import plan_declared, plan_embedded
from exporter.dims.plan import DynamicDim

DECLARATION = TowerDeclaration.model_validate(
    {
        "dims": [{"name": "n", "low": 1, "high_per_row": 4, "reason": "clicks"}, {"name": "m", "high": 50}],
        "inputs": [
            {"name": "z", "dtype": "int32", "shape": ["batch", 2, 3], "table_rows": 9, "column": "pairs"},
            {"name": "item", "dtype": "int64", "shape": ["n"], "table_rows": 9, "lengths": "counts"},
            {"name": "age", "dtype": "float32", "shape": ["n", 1], "lengths": "counts"},
            {"name": "tag", "dtype": "int64", "shape": ["m"], "table_rows": 9, "lengths": "tags"},
            {"name": "counts", "dtype": "int64", "shape": ["batch"]},
            {"name": "tags", "dtype": "int32", "shape": ["batch"]},
        ],
        "embedded": [{"name": "b", "dtype": "float32", "shape": ["n", 8]}],
    }
)
PLAN = plan_declared(DECLARATION, max_batch_size=16)


def test_inputs_are_sorted_by_name_and_filled_from_columns() -> None:
    assert {tensor.name: tensor.filled_with for tensor in PLAN.inputs} == {
        "age": "age.values",
        "counts": "item.lengths",
        "item": "item.values",
        "tag": "tag.values",
        "tags": "tag.lengths",
        "z": "pairs.values",
    }
    assert [tensor.name for tensor in PLAN.inputs] == sorted(tensor.name for tensor in PLAN.inputs)


def test_bounds_hold_per_row_or_in_a_call() -> None:
    assert {dim.name: (dim.low, dim.high) for dim in PLAN.dims} == {
        "batch": (1, 16),
        "n": (1, 64),
        "m": (0, 50),
    }
    assert PLAN.dim("n").reason == "clicks, shared by 2 inputs"


def test_what_passes_between_two_packages_has_a_plan_of_its_own() -> None:
    plan = plan_embedded(DECLARATION, max_batch_size=4)
    assert [(tensor.name, tensor.shape) for tensor in plan.inputs] == [("b", ("n", 8))]
    assert plan.dims == (DynamicDim(name="n", low=1, high=16, reason="clicks, shared by no other input"),)
