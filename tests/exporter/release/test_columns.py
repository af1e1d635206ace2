"""Labels, weights and groups of rows; what cannot be read is named by file, column and row."""

import pyarrow as pa
import pytest

from exporter.errors import InvalidRows
from exporter.release.columns import number_groups, read_group, read_numbers, split_lists
from exporter.release.labelled_rows import LabelledBatch


def batch(column: pa.Array) -> LabelledBatch:
    return LabelledBatch(where="file:///rows.parquet", first_row=100, table=pa.table({"c": column}), calls=())


def test_numbers_are_read_one_per_row_or_several() -> None:
    numbers, per_row = read_numbers(batch(pa.array([True, False])), "c")
    assert (numbers.tolist(), per_row) == ([1, 0], None)
    numbers, per_row = read_numbers(batch(pa.array([[1], None, [2, 3]])), "c")
    assert per_row is not None and (numbers.tolist(), per_row.tolist()) == ([1, 2, 3], [1, 0, 2])


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.array([1.0, None]), "column c, row 101: holds no finite number"),
        (pa.array([0.0, float("nan")]), "column c, row 101: holds no finite number"),
        (pa.array([[1.0], [2.0, None]]), "column c, row 101: holds no finite number"),
        (pa.array(["yes", "no"]), "column c: is of type string, not of numbers"),
    ],
)
def test_what_is_no_number_is_named(column: pa.Array, problem: str) -> None:
    with pytest.raises(InvalidRows, match=problem):
        read_numbers(batch(column), "c")


def test_groups_are_numbered_across_batches() -> None:
    first = read_group(batch(pa.array([7, 8, None])), "c")
    second = read_group(batch(pa.array([[8, 1], [], [7]])), "c")  # of a list the first
    codes = number_groups([first, second]).tolist()
    assert codes[0] == codes[5] and codes[1] == codes[3] and codes[2] == codes[4]
    assert len(set(codes)) == 3


def test_what_groups_no_rows_is_named() -> None:
    with pytest.raises(InvalidRows, match="column c: is of type struct.*groups no rows"):
        read_group(batch(pa.array([{"a": 1}])), "c")


def test_lists_are_split_with_the_row_of_each_value() -> None:
    values, rows = split_lists(batch(pa.array([[1, 2], [], [3]])), "c")
    assert (values.to_pylist(), rows.tolist()) == ([1, 2, 3], [0, 0, 2])
    values, rows = split_lists(batch(pa.array([5, 6])), "c")
    assert (values.to_pylist(), rows.tolist()) == ([5, 6], [0, 1])
