"""What is written in pieces is read back as it was."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exporter.items.vector_files import VectorsWriter, read_groups, read_rows
from tests.exporter.items.conftest import WriteVectors, clustered

IDS = pa.array([f"item {number}" for number in range(730)])


def test_everything_is_read_in_order(write_vectors: WriteVectors) -> None:
    vectors = clustered(730)
    groups = list(read_groups(write_vectors(IDS, vectors)))
    assert [len(group.ids) for group in groups] == [100] * 7 + [30]
    assert pa.concat_arrays([group.ids for group in groups]).equals(IDS)
    assert np.array_equal(np.concatenate([group.vectors for group in groups]), vectors)
    assert np.array_equal(np.concatenate([group.rows for group in groups]), np.arange(730))


def test_a_part_ends_when_it_is_large(write_vectors: WriteVectors) -> None:
    parts = write_vectors(IDS, clustered(730))
    assert [path.name for path in parts] == [f"part-0000{number}.parquet" for number in range(3)]
    assert [pq.read_metadata(path).num_rows for path in parts] == [300, 300, 130]


def test_any_reader_of_parquet_finds_lists_of_equal_width(write_vectors: WriteVectors) -> None:
    table = pq.read_table(write_vectors(pa.array(range(50)), clustered(50))[0])
    assert table.schema.field("item").type == pa.int64()
    assert table.schema.field("vector").type.list_size == 8
    assert table.column("vector")[3].as_py() == clustered(50)[3].tolist()


def test_some_rows_are_read_by_their_places(write_vectors: WriteVectors) -> None:
    vectors, places = clustered(730), np.array([0, 99, 100, 305, 729])
    read = read_rows(write_vectors(IDS, vectors), places)
    assert read.ids.to_pylist() == [f"item {place}" for place in places]
    assert np.array_equal(read.vectors, vectors[places])
    assert read.labels("row_numbers").tolist() == places.tolist()


def test_a_failure_ends_the_file_and_writes_no_more(tmp_path: Path) -> None:
    writer = VectorsWriter(tmp_path, "item", pa.int64(), width=8, group_rows=10)
    with suppress(RuntimeError), writer:
        writer.write(pa.array(range(25)), clustered(25))
        raise RuntimeError
    assert pq.read_metadata(writer.parts[0]).num_rows == 20
