"""Parquet that is damaged, lies or unfolds."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exporter.config.schema import Feature
from exporter.data.parquet import open_parquet
from exporter.data.rows import read_rows
from tests.hostile.kinds import hostile

ROWS = "parquet"


def read(path: Path, columns: list[str]) -> object:
    return [batch.table.num_rows for batch in open_parquet(str(path)).batches(columns)]


def written(folder: Path, table: pa.Table, **options: object) -> Path:
    path = folder / "x.parquet"
    pq.write_table(table, path, **options)
    return path


@hostile("one row of millions of values, in a few kilobytes", reader=ROWS)
def _(folder: Path) -> object:
    path = folder / "x.parquet"
    values = pa.array(np.zeros(4_000_000, dtype=np.int8))
    lists = pa.LargeListArray.from_arrays(pa.array([0, len(values)], type=pa.int64()), values)
    pq.write_table(pa.table({"a": lists}), path)
    assert path.stat().st_size < 1 << 20
    return read(path, ["a"])


@hostile("a footer that goes on before the file begins", reader=ROWS)
def _(folder: Path) -> object:
    path = written(folder, pa.table({"a": [1]}))
    data = path.read_bytes()
    path.write_bytes(data[:-8] + b"\xff\xff\xff\x7f" + b"PAR1")
    return read(path, ["a"])


@hostile("a page cut short", reader=ROWS)
def _(folder: Path) -> object:
    path = written(folder, pa.table({"a": list(range(10_000))}), compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[40:20_000] = bytes(19_960)
    path.write_bytes(data)
    return read(path, ["a"])


@hostile("sizes in the footer turned over", reader=ROWS)
def _(folder: Path) -> object:
    path = written(folder, pa.table({"a": ["x" * 100] * 100}))
    data = bytearray(path.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little")
    for at in range(len(data) - 8 - footer, len(data) - 8):
        data[at] ^= 0x55
    path.write_bytes(data)
    return read(path, ["a"])


@hostile("a column of another name twice", reader=ROWS)
def _(folder: Path) -> object:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    return read(written(folder, table), ["a"])


@hostile("a pipe where rows should be", reader=ROWS)
def _(folder: Path) -> object:
    os.mkfifo(folder / "x.parquet")
    return read(folder / "x.parquet", ["a"])


@hostile("more columns than any model has features", reader=ROWS)
def _(folder: Path) -> object:
    names = [f"c{number}" for number in range(20_001)]
    return read(written(folder, pa.table({name: [1] for name in names})), ["c1"])


@hostile("an id of 2^62, far outside of its table", reader=ROWS)
def _(folder: Path) -> object:
    path = written(folder, pa.table({name.name: [1 << 62] for name in _features()}))
    return read_rows(str(path), _features())


def _features() -> tuple[Feature, ...]:
    from exporter.config.parse import parse_pipeline_config
    from tests.hostile.configs import config_of

    return parse_pipeline_config(config_of("mind")).features[:1]
