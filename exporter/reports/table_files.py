"""The description of sharded tables: whose rows lie in which file."""

from typing import Literal

from pydantic import Field

from exporter.dtypes import TableDtype
from exporter.spec import Frozen, TowerName


class TableRows(Frozen):
    """Rows of a table, from `first` up to `end`, under the table's `tensor` in a .safetensors file."""

    first: int
    end: int
    file: str  # below the artifact's root
    sha256: str  # of that file


class ShardedTable(Frozen):
    """A table and the files of its rows; the shards together have every row, in order."""

    name: str
    tensor: str  # its name in the files, which is the checkpoint's without "model."
    rows: int
    width: int
    dtype: str  # of the tensor in the files
    kept_in: TableDtype = Field(
        default=TableDtype.FP32,
        description="Dtype of its rows, fused as fbgemm does. int8: `width` bytes, scale and offset in fp32; "
        "int4: half as many bytes, the first number of two in the low bits, scale and offset in fp16.",
    )
    features: tuple[str, ...]  # features that are looked up in it
    id_map: str | None = None  # in front of the names of its map's tensors in the files; None: ids are rows
    shards: tuple[TableRows, ...]


class TablesFile(Frozen):
    """The content of `tables.json`: the sharded tables of a tower."""

    version: Literal[1] = 1
    tower: TowerName
    tables: tuple[ShardedTable, ...]
