"""Tables in shards are compared row by row, across the files of all ranks."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from exporter.comparison.row_values import PublishedTable
from exporter.comparison.table_diff import compare_tables
from exporter.comparison.tower_weights import read_sharded_tables
from exporter.errors import InvalidArtifact
from exporter.shards.join import tables_file
from tests.exporter.shards.conftest import Shard, Sharded

INDEX = "tables.json"
DTYPES = ["fp32", "fp16", "int8", "int4"]


def open_tables(sharded: Sharded, root: Path) -> dict[str, PublishedTable]:
    tables = tables_file(sharded.planned.name, sharded.made, sharded.spec.tables)
    (root / INDEX).write_text(tables.model_dump_json())
    return read_sharded_tables(root, INDEX)


def change_byte(sharded: Sharded, root: Path, table: str, row: int) -> None:
    """Change the first byte of a row, in the file of the rank that wrote it."""
    tables = tables_file(sharded.planned.name, sharded.made, sharded.spec.tables)
    [found] = [each for each in tables.tables if each.name == table]
    [shard] = [each for each in found.shards if each.first <= row < each.end]
    tensors = load_file(root / shard.file)
    tensors[found.tensor].view(torch.uint8)[row - shard.first, 0] ^= 0x7F
    save_file(tensors, root / shard.file)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_every_rank_are_compared(shard: Shard, tmp_path: Path, dtype: str) -> None:
    sharded = shard("hstu_match", 1, ranks=3, tables={"layout": "sharded", "dtype": dtype})
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "tables", other / "tables")
    for row in (1, 700, 1999):  # of the first, the second and the third rank
        change_byte(sharded, other, "video_id_emb", row)
    old, new = open_tables(sharded, tmp_path), open_tables(sharded, other)
    diffs = {each.name: each for each in (compare_tables(old[path], new[path]) for path in old)}
    assert {name: each.rows_changed for name, each in diffs.items()} == {"video_id_emb": 3}
    assert {row.row for row in diffs["video_id_emb"].most_changed} == {1, 700, 1999}
    assert (diffs["video_id_emb"].rows_compared, diffs["video_id_emb"].new_dtype) == (2000, dtype)
    same = [compare_tables(table, table) for table in old.values()]
    assert not any(each.differs for each in same)


def test_tables_behind_a_map_are_compared_by_id_across_ranks(shard: Shard, tmp_path: Path) -> None:
    sharded = shard("dcn_v2", ranks=2)
    tables = open_tables(sharded, tmp_path)
    mapped = [table for table in tables.values() if table.ids is not None]
    assert mapped
    for table in mapped:
        assert table.ids is not None
        diff = compare_tables(table, table)
        assert (diff.by_id, diff.rows_changed, diff.rows_compared) == (True, 0, len(table.ids))


def test_a_file_without_its_rows_is_an_error_that_names_it(shard: Shard, tmp_path: Path) -> None:
    sharded = shard("hstu_match", 1, ranks=2)
    tables = tables_file(sharded.planned.name, sharded.made, sharded.spec.tables)
    file = tmp_path / tables.tables[0].shards[1].file
    save_file({"other": torch.zeros(2)}, file)
    with pytest.raises(InvalidArtifact, match=r"rows-1-of-2\.safetensors has nothing of"):
        open_tables(sharded, tmp_path)
