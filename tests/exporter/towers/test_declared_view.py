"""Rows become a declared tower's inputs: names, types and shapes of its own, values checked."""

import pyarrow as pa
import pytest
import torch
from torch import Tensor

from exporter.data.encode import encode
from exporter.declaration import TowerDeclaration
from exporter.dims.declared_dims import plan_declared
from exporter.errors import InvalidRows
from exporter.towers.declared_view import declared_tower

DECLARATION = TowerDeclaration.model_validate(
    {
        "dims": [{"name": "n"}],
        "inputs": [
            {"name": "user", "dtype": "int32", "shape": ["batch"], "table_rows": 9, "fill": 8},
            {"name": "score", "dtype": "float32", "shape": ["batch"], "column": "s", "fill": -1},
            {"name": "boxes", "dtype": "int64", "shape": ["batch", 2, 1], "table_rows": 9},
            {"name": "click.v", "dtype": "int64", "shape": ["n"], "table_rows": 9, "lengths": "click.n"},
            {"name": "ages", "dtype": "float32", "shape": ["n", 2], "lengths": "click.n"},
            {"name": "click.n", "dtype": "int64", "shape": ["batch"]},
        ],
    }
)
ROWS: dict[str, list[object]] = {
    "user": [1, None],
    "s": [0.5, None],
    "boxes": [[1, 2], [3, 4]],
    "click.v": ["5;6", None],
    "ages": [[[0.5, 1], [2, 3]], []],
}


def encoded(**changes: list[object]) -> dict[str, Tensor]:
    tower = declared_tower(DECLARATION, family="f", text="")
    plan = plan_declared(DECLARATION, max_batch_size=4)
    return encode(pa.table(ROWS | changes), tower.pipeline.features, plan, where="rows.parquet")


def test_rows_fill_the_inputs_by_their_own_names() -> None:
    expected = {
        "ages": torch.tensor([[0.5, 1], [2, 3]]),
        "boxes": torch.tensor([[[1], [2]], [[3], [4]]]),
        "click.n": torch.tensor([2, 0]),
        "click.v": torch.tensor([5, 6]),
        "score": torch.tensor([0.5, -1]),
        "user": torch.tensor([1, 8], dtype=torch.int32),
    }
    tensors = encoded()
    assert list(tensors) == list(expected)
    torch.testing.assert_close(tensors, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"user": [1, 9]}, "column user, row 1: 9 is not in 0 to 8, the rows of table user"),
        ({"boxes": [[1, 2], [3]]}, "column boxes, row 1: the row holds 1 value, feature boxes takes 2"),
        ({"s": [0.5, float("inf")]}, "column s, row 1: inf is not a finite"),
        ({"ages": [[[0.5, 1]], []]}, "column ages, row 0: holds 1 events, but click.v of the same"),
        ({"ages": [[[0.5], [1.0]], []]}, "an event holds 1 value, feature ages takes 2 values"),
    ],
)
def test_rows_that_are_not_as_declared_are_refused(changes: dict[str, list[object]], problem: str) -> None:
    with pytest.raises(InvalidRows, match=problem):
        encoded(**changes)


def test_without_a_fill_every_row_has_its_value() -> None:
    with pytest.raises(InvalidRows, match="column boxes, row 0: the row holds no value"):
        encoded(boxes=[None, [1, 2]])
