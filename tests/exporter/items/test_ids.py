"""Ids are taken as they are; what cannot name an item is refused with its row."""

from pathlib import Path

import pyarrow as pa
import pytest

from exporter.errors import InvalidRows
from exporter.items.ids import check_ids
from tests.exporter.items.conftest import WriteIds


@pytest.mark.parametrize(
    ("ids", "label"),
    [
        (pa.array([3, 1, 2]), True),
        (pa.array([3, 0, 2], pa.uint8()), True),
        (pa.array([3, -1, 2]), False),
        (pa.array([3, 2**63], pa.uint64()), False),
        (pa.array(["b", "a"]), False),
        (pa.array(["7", "8"], pa.large_string()), False),
        (pa.array(["b", "a"]).dictionary_encode(), False),
    ],
)
def test_integers_and_strings_name_items(
    ids: pa.Array, label: bool, write_ids: WriteIds, tmp_path: Path
) -> None:
    checked = check_ids(write_ids(ids), "item", scratch=tmp_path)
    assert (checked.rows, checked.can_label_index) == (len(ids), label)
    plain = ids.type.value_type if isinstance(ids.type, pa.DictionaryType) else ids.type
    assert checked.kind == plain


@pytest.mark.parametrize("ids", [pa.array([1, None, 3]), pa.array(["a", None, "c"])])
def test_an_item_without_an_id_is_named_by_its_row(
    ids: pa.Array, write_ids: WriteIds, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRows, match=r"0\.parquet, column item, row 1: an item has no id"):
        check_ids(write_ids(ids), "item", scratch=tmp_path)


@pytest.mark.parametrize("ids", [pa.array([1.0]), pa.array([[1]])])
def test_what_names_nothing_is_refused(ids: pa.Array, write_ids: WriteIds, tmp_path: Path) -> None:
    with pytest.raises(InvalidRows, match="ids are integers or strings"):
        check_ids(write_ids(ids), "item", scratch=tmp_path)


def test_files_with_ids_of_two_types_are_refused(write_ids: WriteIds, tmp_path: Path) -> None:
    source = write_ids(pa.array([1]), pa.array(["1"]))
    with pytest.raises(
        InvalidRows, match=r"1\.parquet.* is of type string, and of type int64 in .*0\.parquet"
    ):
        check_ids(source, "item", scratch=tmp_path)


@pytest.mark.parametrize("rows_per_bucket", [10, 10**6])
@pytest.mark.parametrize("text", [False, True])
def test_an_item_that_comes_twice_is_named_with_both_rows(
    text: bool, rows_per_bucket: int, write_ids: WriteIds, tmp_path: Path
) -> None:
    numbers = [number * 17 for number in range(1000)]
    files = [pa.array(numbers[:600]), pa.array([*numbers[600:], numbers[42], numbers[7]])]
    source = write_ids(*(ids.cast(pa.string()) if text else ids for ids in files))
    twice = r"1\.parquet, column item, row 400: item '?714'? is also row 42 of .*0\.parquet"
    with pytest.raises(InvalidRows, match=twice):
        check_ids(source, "item", scratch=tmp_path, rows_per_bucket=rows_per_bucket)


def test_ids_in_many_buckets_are_all_different(write_ids: WriteIds, tmp_path: Path) -> None:
    source = write_ids(pa.array(range(5000)))
    assert check_ids(source, "item", scratch=tmp_path, rows_per_bucket=100).rows == 5000
    assert [path.name for path in tmp_path.iterdir()] == ["0.parquet"]
