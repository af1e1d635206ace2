"""Small files that unfold to very much: rows, and the tables of checkpoints."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.attacks import metadata
from exporter.checkpoint.dcp_metadata import read_metadata
from tests.hostile.checkpoints import METADATA, NAME, checkpoint, metadata_of
from tests.hostile.kinds import hostile
from tests.hostile.rows import ROWS, read
from tests.hostile.tables import zeros

_PLAIN = {"compression": "zstd", "write_statistics": False, "store_schema": False}


def made(folder: Path, make: Callable[[], pa.Table], **options: object) -> Path:
    """Write a table in another process, whose memory is not that of the reader; it takes little room."""
    path = folder / "x.parquet"
    elsewhere(lambda: pq.write_table(make(), path, **(_PLAIN | options)))
    assert path.stat().st_size < 1 << 20
    return path


def elsewhere(make: Callable[[], object]) -> None:
    """Call in another process."""
    child = multiprocessing.get_context("fork").Process(target=make)
    child.start()
    child.join()
    assert child.exitcode == 0


def gridded(folder: Path, down: int, across: int) -> object:
    """Read the metadata of one tensor that is cut into a grid of chunks."""
    path = folder / ".metadata"
    elsewhere(lambda: metadata.write(path, 1, down, across))
    return read_metadata(path)


def claim(path: Path, values: int, claimed: int) -> None:
    """Let the footer claim another number of values or rows than the pages hold."""
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8].replace(_varint(values), _varint(claimed))
    assert footer != data[start:-8]
    path.write_bytes(data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def _varint(number: int) -> bytes:
    """Return a number as thrift writes it."""
    rest, digits = number << 1, bytearray()
    while rest:
        digits.append(rest & 0x7F | 0x80)
        rest >>= 7
    digits[-1] &= 0x7F
    return bytes(digits)


@hostile("a thousand rows of 100,000 values each, in a few kilobytes", reader=ROWS, ends="read")
def _(folder: Path) -> object:
    return read(made(folder, lambda: zeros([100_000] * 1024)), ["a"])


@hostile("a hundred rows of a million values, among many that are empty", reader=ROWS, ends="read")
def _(folder: Path) -> object:
    return read(made(folder, lambda: zeros([0] * 3000 + [1_000_000] * 100)), ["a"])


@hostile("pages of more values than the footer claims", reader=ROWS)
def _(folder: Path) -> object:
    path = made(folder, lambda: zeros([60_000_000]), data_page_size=1 << 30)
    claim(path, 60_000_000, 1000)
    return read(path, ["a"])


@hostile("one text of a megabyte, named by 2,000 rows", reader=ROWS, ends="read")
def _(folder: Path) -> object:
    return read(made(folder, lambda: _repeated("x" * 1_000_000, 2000)), ["a"])


@hostile("one text of a megabyte in 2,000 rows, declared as a dictionary", reader=ROWS, ends="read")
def _(folder: Path) -> object:
    path = made(folder, lambda: _repeated("x" * 1_000_000, 2000), store_schema=True)
    from exporter.data.parquet import open_parquet

    for batch in open_parquet(str(path)).batches(["a"]):
        batch.table.column("a").combine_chunks().dictionary_decode()
    return path


@hostile("a page that unpacks to half a gigabyte", reader=ROWS)
def _(folder: Path) -> object:
    def one_text() -> pa.Table:
        length = 500_000_000
        buffers = [None, pa.py_buffer(np.array([0, length])), pa.py_buffer(bytes(length))]
        return pa.table({"a": pa.Array.from_buffers(pa.large_string(), 1, buffers)})

    return read(made(folder, one_text, use_dictionary=False), ["a"])


@hostile("two million rows without any value", reader=ROWS, ends="read")
def _(folder: Path) -> object:
    nulls = made(folder, lambda: pa.table({"a": pa.nulls(2_000_000, pa.int64())}), row_group_size=2_000_000)
    return read(nulls, ["a"])


@hostile("2^50 rows, announced", reader=ROWS)
def _(folder: Path) -> object:
    from exporter.data.parquet import open_parquet
    from exporter.items.ids import check_ids

    path = made(folder, lambda: pa.table({"a": range(100_000)}), use_dictionary=False)
    claim(path, 100_000, 1 << 50)
    return check_ids(open_parquet(str(path)), "a", scratch=folder)


@hostile("columns nested 300 deep", reader=ROWS)
def _(folder: Path) -> object:
    nested = pa.array([1])
    for _ in range(300):
        nested = pa.ListArray.from_arrays(pa.array([0, 1], type=pa.int32()), nested)
    return read(made(folder, lambda: pa.table({"a": nested})), ["a"])


def _repeated(text: str, rows: int) -> pa.Table:
    return pa.table({"a": pa.DictionaryArray.from_arrays(np.zeros(rows, dtype=np.int32), pa.array([text]))})


@hostile("a table in 220 x 220 chunks", reader=METADATA, ends="read")
def _(folder: Path) -> object:
    return gridded(folder, 220, 220)


@hostile("twelve million empty lists, of a byte each", reader=METADATA)
def _(folder: Path) -> object:
    return metadata_of(folder, b"\x80\x02(" + b"]" * 12_000_000 + b"t.")


@hostile("five million empty sets, of a byte each", reader=METADATA)
def _(folder: Path) -> object:
    return metadata_of(folder, b"\x80\x05](" + b"\x8f" * 5_000_000 + b"e.")


@hostile("a tensor of 30 axes, whose chunks have 2^30 corners", reader=METADATA)
def _(folder: Path) -> object:
    return checkpoint(folder, b"", size=(1,) * 30).read(NAME)
