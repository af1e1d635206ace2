"""Memory does not grow with the tables that are compared."""

from pathlib import Path

import torch

from exporter.checkpoint.mapped_tensor import map_tensor
from exporter.checkpoint.tensors import TensorMeta
from exporter.comparison.row_values import PackagedTable
from exporter.comparison.table_diff import compare_tables
from exporter.dtypes import TableDtype
from tests.memory_taken import memory_taken

ROWS, WIDTH = 600_000, 32  # 77 MB


def compare_large_tables(folder: Path) -> None:
    """Compare two tables in files, of which every second row has changed."""
    sides = []
    for name in ("old", "new"):
        with (folder / name).open("wb") as file:
            file.truncate(ROWS * WIDTH * 4)
        weight = map_tensor(folder / name, 0, TensorMeta(shape=(ROWS, WIDTH), dtype=torch.float32))
        sides.append(weight)
    with (folder / "new").open("r+b") as file:
        row = torch.tensor([[1.0] + [0.0] * (2 * WIDTH - 1)]).repeat(ROWS // 1000, 1).numpy().tobytes()
        for _ in range(500):
            file.write(row)
    old, new = (
        PackagedTable(
            name="t", path="t", rows=ROWS, width=WIDTH, dtype=TableDtype.FP32, tensors={"weight": weight}
        )
        for weight in sides
    )
    assert compare_tables(old, new).rows_changed == ROWS // 2


def test_large_tables_are_compared_in_little_memory(tmp_path: Path) -> None:
    taken = memory_taken(compare_large_tables, tmp_path)
    assert taken < 48 << 20, f"{taken:,} bytes for two tables of 77 MB"
