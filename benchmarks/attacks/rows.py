"""Small parquet files that unfold to very much, read as exports read them; and real rows beside them.

Each file is written by one process and read by another, whose peak of memory is compared with that before it
read. Real rows are read and encoded in batches of the sizes that exports use, for the rate.
"""

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure.bounds import Bounds
from benchmarks.measure.child_process import run_in_child
from exporter.config.parse import parse_pipeline_config
from exporter.data.encode import read_features
from exporter.data.parquet import open_parquet
from exporter.errors import InvalidRows
from exporter.towers.view import tower_configs
from processes.interrupts import interrupt_on_end_signals

BOUND_MB = 300
ROWS = 1024  # at a time, as for sample rows
_REAL = Path(__file__).parents[2] / "tests" / "fixtures" / "torcheasyrec"
_PLAIN = {"compression": "zstd", "write_statistics": False, "store_schema": False}
_MOST_BYTES = 10 << 30  # that a reading process may map
_REPEATED = 40
_ROUNDS = 7


def lists(counts: list[int]) -> pa.Table:
    """Return a column of lists of zeros, of these lengths."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    values = pa.array(np.zeros(int(offsets[-1]), dtype=np.int8))
    return pa.table({"a": pa.LargeListArray.from_arrays(pa.array(offsets), values)})


def texts(rows: int) -> pa.Table:
    """Return a column that holds one text of a megabyte in every row."""
    numbers = np.zeros(rows, dtype=np.int32)
    return pa.table({"a": pa.DictionaryArray.from_arrays(numbers, pa.array(["x" * 1_000_000]))})


def one_text(size: int) -> pa.Table:
    """Return a column of one row with a text of NULs."""
    buffers = [None, pa.py_buffer(np.array([0, size])), pa.py_buffer(bytes(size))]
    return pa.table({"a": pa.Array.from_buffers(pa.large_string(), 1, buffers)})


FILES: dict[str, Callable[[], pa.Table]] = {
    "1,024 rows of 290,000 values": lambda: lists([290_000] * 1024),
    "100 rows of a million values among empty ones": lambda: lists([0] * 5000 + [1_000_000] * 100),
    "3,000 rows that share a text of 1 MB": lambda: texts(3000),
    "a text of 1 GB": lambda: one_text(1_000_000_000),
    "20 million empty rows": lambda: pa.table({"a": pa.nulls(20_000_000, pa.int64())}),
}


def write(make: Callable[[], pa.Table], path: Path) -> str:
    table = make()
    pq.write_table(table, path, row_group_size=max(table.num_rows, 1), **_PLAIN)
    return "written"


def read(path: Path) -> str:
    """Read all rows, and return how that ended."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    rows = 0
    try:
        for batch in open_parquet(str(path)).batches(["a"], rows_per_batch=ROWS):
            rows += batch.table.num_rows
    except InvalidRows:
        return "refused"
    return f"{rows:,} rows"


def rate_of_real_rows(folder: Path, batch: int) -> float:
    """Return the rows per second of reading and encoding recorded training rows, repeated."""
    text = (_REAL / "hstu_match" / "pipeline.config").read_text()
    features = tower_configs(parse_pipeline_config(text), None)[0].pipeline.features
    recorded = pq.read_table(_REAL / "data" / "train.parquet")
    pq.write_table(pa.concat_tables([recorded] * _REPEATED), folder / "real.parquet")
    source = open_parquet(str(folder / "real.parquet"))
    rates = []
    for _ in range(_ROUNDS):
        begun, rows = time.perf_counter(), 0
        for each in source.batches([feature.name for feature in features], rows_per_batch=batch):
            rows += each.table.num_rows
            read_features(each.table, features, where=each.where, first_row=each.first_row)
        rates.append(rows / (time.perf_counter() - begun))
    return statistics.median(rates)


def main() -> int:
    """Read every file, print the figures, and return 1 if a bound was missed."""
    argparse.ArgumentParser(prog="python -m benchmarks.attacks.rows", description=__doc__).parse_args()
    interrupt_on_end_signals()
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="slipway-attack-") as folder:
        for number, (name, make) in enumerate(FILES.items()):
            path = Path(folder) / f"{number}.parquet"
            run_in_child(partial(write, make, path))
            ended = run_in_child(partial(read, path))
            if not ended.is_answer:
                raise SystemExit(f"{name}: the reader died or did not end")
            what = (
                f"{path.stat().st_size:,} bytes, {name} ({ended.text}, {ended.cpu_seconds:.1f} s of CPU), MB"
            )
            bounds.check(what, ended.grown / 1e6, BOUND_MB)
        for batch in (256, 1024):
            rate = rate_of_real_rows(Path(folder), batch)
            sys.stdout.write(f"real rows in batches of {batch}: {rate:,.0f} per second\n")
    return bounds.exit_status


if __name__ == "__main__":
    sys.exit(main())
