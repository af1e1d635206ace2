"""Quantise a tower's tables in pieces of bounded size, and measure the error of their rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exporter.checkpoint.mapped_tensor import room_for
from exporter.checkpoint.tensors import TensorMeta
from exporter.dtypes import TableDtype
from exporter.lowering.errors import TableOutOfRange
from exporter.manifest import RowError, TableEntry
from exporter.models.embedding.table_in_pieces import TableInPieces
from exporter.models.embedding.tables import (
    FLOATS,
    LOW_TABLES,
    EmbeddingTable,
    FloatTable,
    LowTable,
    loses_precision,
)
from exporter.options.tables import Tables

PIECE = 8 << 20  # bytes of rows in fp32 that are quantised or widened at a time


def table_modules(module: nn.Module) -> dict[str, EmbeddingTable]:
    """Return every table of a tower by its path, each once."""
    return {path: child for path, child in module.named_modules() if isinstance(child, EmbeddingTable)}


def quantise_tables(module: nn.Module, tables: Tables) -> tuple[TableEntry, ...]:
    """Replace tables of `module` by tables of the dtypes in `tables`; return the entry of every table.

    A table stays as it is where its dtype is that of the checkpoint. A table that is looked up in pieces is
    not replaced: it returns rows as if its pieces were quantised. A large replacement lies in an unnamed
    file, not in memory.

    Raises:
        TableOutOfRange: a row has numbers that its dtype cannot hold.
    """
    entries = []
    for path, table in table_modules(module).items():
        parent, _, name = path.rpartition(".")
        trained = trained_dtype(table)
        dtype, error = tables.dtype_of(name, trained), None
        if isinstance(table, TableInPieces):  # its error is measured when its rows are written
            shape, table.kept_in = table.meta.shape, dtype
        else:
            assert isinstance(table, FloatTable)
            shape = tuple(table.weight.shape)
            if loses_precision(trained, dtype):
                low, error = quantise_table(table.weight.detach(), dtype, name=name)
                module.get_submodule(parent).register_module(name, low)
            elif dtype is not trained:
                module.get_submodule(parent).register_module(name, widen_table(table.weight.detach()))
        entries.append(table_entry(path, shape, trained, dtype, error))
    return tuple(entries)


def changes_tables(module: nn.Module, tables: Tables) -> bool:
    """Return whether any table of `module` is to be kept in another dtype than it was trained in."""
    found = ((path.rpartition(".")[2], trained_dtype(table)) for path, table in table_modules(module).items())
    return any(tables.dtype_of(name, trained) is not trained for name, trained in found)


def trained_dtype(table: EmbeddingTable) -> TableDtype:
    """Return the dtype that the checkpoint has for the rows of a table, which must not be quantised yet."""
    if isinstance(table, TableInPieces):
        return table.trained
    assert isinstance(table, FloatTable)
    return table.dtype


def table_entry(
    path: str, shape: Sequence[int], trained: TableDtype, dtype: TableDtype, error: RowError | None
) -> TableEntry:
    """Return the manifest's entry of a table whose rows, `trained` in one dtype, are stored in `dtype`."""
    rows, width = shape
    return TableEntry(
        name=path.rpartition(".")[2],
        path=path,
        rows=rows,
        width=width,
        trained=trained,
        dtype=dtype,
        fp32_bytes=rows * TableDtype.FP32.row_bytes(width),
        bytes=rows * dtype.row_bytes(width),
        error=error,
    )


def quantise_table(weight_RD: Tensor, dtype: TableDtype, *, name: str) -> tuple[LowTable, RowError]:
    """Return a table in `dtype` and the error of its rows; only one piece of them is held in memory."""
    kind, width = LOW_TABLES[dtype], weight_RD.shape[1]
    packed: dict[str, Tensor] = {}
    errors = RowErrors()
    for start, rows_PD in _pieces(weight_RD):
        packed_piece = kind.split(fuse_rows(rows_PD, dtype, errors, name=name, first=start), width)
        if not packed:
            packed = {key: _room(value, weight_RD.shape[0]) for key, value in packed_piece.items()}
        for key, value in packed_piece.items():
            packed[key][start : start + len(value)] = value
    return kind(packed or kind.pack(weight_RD.float()), width), errors.summarise()


def widen_table(weight_RD: Tensor) -> FloatTable:
    """Return the table in fp32; only one piece of it is held in memory."""
    wide = room_for(TensorMeta(shape=tuple(weight_RD.shape), dtype=FLOATS[TableDtype.FP32]))
    for start, rows_PD in _pieces(weight_RD):
        wide[start : start + len(rows_PD)] = rows_PD
    return FloatTable(wide)


def _pieces(weight_RD: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the rows in pieces, each with the number of its first row."""
    count = max(1, PIECE // TableDtype.FP32.row_bytes(weight_RD.shape[1]))
    for start in range(0, weight_RD.shape[0], count):
        yield start, weight_RD[start : start + count].contiguous()


def fuse_rows(rows_PD: Tensor, dtype: TableDtype, errors: "RowErrors", *, name: str, first: int) -> Tensor:
    """Quantise some rows of a table into fbgemm's fused layout and add their errors to `errors`.

    `name` is the table's and `first` the number of the first of the rows, for the error message.

    Raises:
        TableOutOfRange: a row has numbers that the dtype cannot hold.
    """
    kind, rows_PD = LOW_TABLES[dtype], rows_PD.float()
    packed = kind.fuse(rows_PD)
    restored_PD = kind.restore(packed, rows_PD.shape[1])
    finite_P = restored_PD.isfinite().all(dim=1)
    if not finite_P.all():
        place = int(finite_P.logical_not().nonzero()[0])
        raise TableOutOfRange(
            f"table {name}: row {first + place} has numbers that {dtype} cannot hold: its largest magnitude "
            f"is {rows_PD[place].abs().max().item():.3g}",
            where=name,
        )
    errors.add(rows_PD, restored_PD)
    return packed


def _room(piece: Tensor, rows: int) -> Tensor:
    """Allocate a tensor for all rows of a table, of the width and dtype of this piece."""
    return room_for(TensorMeta(shape=(rows, *piece.shape[1:]), dtype=piece.dtype))


@dataclass
class RowErrors:
    """Sums and maxima of row errors (see `RowError`), collected piece by piece and rank by rank."""

    rows: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    absolute_sum: float = 0.0
    relative_sum: float = 0.0

    def add(self, before_PD: Tensor, after_PD: Tensor) -> None:
        absolute_P = (after_PD - before_PD).abs().amax(dim=1).double()
        largest_P = before_PD.abs().amax(dim=1).double()
        relative_P = torch.where(largest_P > 0, absolute_P / largest_P, absolute_P)
        self.rows += len(absolute_P)
        self.absolute = max(self.absolute, absolute_P.max().item())
        self.relative = max(self.relative, relative_P.max().item())
        self.absolute_sum += absolute_P.sum().item()
        self.relative_sum += relative_P.sum().item()

    def join(self, others: "RowErrors") -> None:
        """Add the errors of other rows."""
        self.rows += others.rows
        self.absolute = max(self.absolute, others.absolute)
        self.relative = max(self.relative, others.relative)
        self.absolute_sum += others.absolute_sum
        self.relative_sum += others.relative_sum

    def summarise(self) -> RowError:
        rows = max(1, self.rows)
        return RowError(
            max_absolute=self.absolute,
            mean_absolute=self.absolute_sum / rows,
            max_relative=self.relative,
            mean_relative=self.relative_sum / rows,
        )
