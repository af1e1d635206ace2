"""A tower's tables quantised, in bounded pieces from wherever they lie, and what that costs in precision."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exporter.checkpoint.mapped import room_for
from exporter.checkpoint.tensors import TensorMeta
from exporter.dtypes import TableDtype
from exporter.lowering.errors import TableOutOfRange
from exporter.manifest import RowError, TableEntry
from exporter.models.pieces import TableInPieces
from exporter.models.tables import LOW_TABLES, Fp32Table, LowTable, Table
from exporter.spec import Tables

PIECE = 8 << 20  # bytes of fp32 rows that are quantised at a time


def tables_of(module: nn.Module) -> dict[str, Table]:
    """Every table of a tower, by its path; each once."""
    return {path: child for path, child in module.named_modules() if isinstance(child, Table)}


def quantise(module: nn.Module, tables: Tables) -> tuple[TableEntry, ...]:
    """Replace tables of `module`, all of them fp32, by what `tables` asks for; tells of each of them.

    What a table is replaced by lies in a file of its own where it is large, as a mapped table does.

    Raises:
        TableOutOfRange: a row has numbers that its dtype cannot hold.
    """
    entries = []
    for path, table in tables_of(module).items():
        if isinstance(table, TableInPieces):  # in shards, as training has them
            entries.append(entry_of(path, table.meta.shape, TableDtype.FP32, None))
            continue
        assert isinstance(table, Fp32Table)
        parent, _, name = path.rpartition(".")
        dtype, error = tables.dtype_of(name), None
        if dtype is not TableDtype.FP32:
            low, error = quantised(table.weight.detach(), dtype, name=name)
            module.get_submodule(parent).register_module(name, low)
        entries.append(entry_of(path, tuple(table.weight.shape), dtype, error))
    return tuple(entries)


def entry_of(path: str, shape: tuple[int, ...], dtype: TableDtype, error: RowError | None) -> TableEntry:
    """What the manifest says of a table that is kept in `dtype`."""
    rows, width = shape
    return TableEntry(
        name=path.rpartition(".")[2],
        path=path,
        rows=rows,
        width=width,
        dtype=dtype,
        fp32_bytes=rows * TableDtype.FP32.row_bytes(width),
        bytes=rows * dtype.row_bytes(width),
        error=error,
    )


def quantised(weight_RD: Tensor, dtype: TableDtype, *, name: str) -> tuple[LowTable, RowError]:
    """The rows in `dtype`, and how far they are from what they were; no more than a piece is in memory."""
    kind, width = LOW_TABLES[dtype], weight_RD.shape[1]
    packed: dict[str, Tensor] = {}
    errors = _Errors()
    for start, packed_piece, rows_PD in packed_pieces(weight_RD, dtype, name=name):
        if not packed:
            packed = {key: _room(value, weight_RD.shape[0]) for key, value in packed_piece.items()}
        for key, value in packed_piece.items():
            packed[key][start : start + len(value)] = value
        errors.add(rows_PD, _unpacked(kind, packed_piece, width))
    return kind(packed or kind.pack(weight_RD), width), errors.told()


def packed_pieces(
    weight_RD: Tensor, dtype: TableDtype, *, name: str
) -> Iterator[tuple[int, dict[str, Tensor], Tensor]]:
    """Piece by piece: where it begins, its rows as `dtype` keeps them, and as they were.

    Raises:
        TableOutOfRange: a row has numbers that the dtype cannot hold; `name` is the table's.
    """
    kind, width = LOW_TABLES[dtype], weight_RD.shape[1]
    count = max(1, PIECE // TableDtype.FP32.row_bytes(width))
    for start in range(0, weight_RD.shape[0], count):
        rows_PD = weight_RD[start : start + count].contiguous()
        packed = kind.pack(rows_PD)
        finite_P = _unpacked(kind, packed, width).isfinite().all(dim=1)
        if not finite_P.all():
            row = start + int(finite_P.logical_not().nonzero()[0])
            raise TableOutOfRange(
                f"table {name}: row {row} has numbers that {dtype} cannot hold: its largest magnitude is "
                f"{rows_PD[row - start].abs().max().item():.3g}",
                where=name,
            )
        yield start, packed, rows_PD


def _unpacked(kind: type[LowTable], packed: Mapping[str, Tensor], width: int) -> Tensor:
    count = next(iter(packed.values())).shape[0]
    return kind(packed, width).rows(torch.arange(count))


def _room(piece: Tensor, rows: int) -> Tensor:
    """For all rows of a table, of which there is a piece."""
    return room_for(TensorMeta(shape=(rows, *piece.shape[1:]), dtype=piece.dtype))


@dataclass
class _Errors:
    """Errors of rows, as `RowError` defines them, gathered piece by piece."""

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

    def told(self) -> RowError:
        rows = max(1, self.rows)
        return RowError(
            max_absolute=self.absolute,
            mean_absolute=self.absolute_sum / rows,
            max_relative=self.relative,
            mean_relative=self.relative_sum / rows,
        )
