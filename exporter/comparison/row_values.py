"""Rows of a published table in fp32, whatever it is kept in, some at a time, from mapped files.

R rows, P rows of a piece, D width of a row.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exporter.checkpoint.keymap import FREE_ID
from exporter.checkpoint.tensors import Piece
from exporter.dtypes import TableDtype
from exporter.models.embedding.tables import FLOATS, LOW_TABLES

PIECE = 4 << 20  # bytes of rows in fp32 that are held at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsOfIds:
    """A map of ids in front of a table: ids in ascending order, and the row of each."""

    ids: Tensor  # (R,)
    rows: Tensor  # (R,)

    def __len__(self) -> int:
        """Return the number of ids, without the free slots behind them."""
        return int(torch.searchsorted(self.ids, FREE_ID))


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedTable(ABC):
    """A table of a published tower."""

    name: str
    path: str
    rows: int
    width: int
    dtype: TableDtype
    ids: RowsOfIds | None = None  # None: ids are row numbers

    @property
    def rows_per_piece(self) -> int:
        """Number of rows that are held at a time."""
        return max(1, PIECE // TableDtype.FP32.row_bytes(max(1, self.width)))

    @abstractmethod
    def read(self, rows_P: Tensor) -> Tensor:
        """Return the rows of these numbers in fp32: (P, D)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PackagedTable(PublishedTable):
    """A table among the weights of a package, as the tensors that it consists of."""

    tensors: Mapping[str, Tensor]

    def read(self, rows_P: Tensor) -> Tensor:
        part = {name: tensor[rows_P] for name, tensor in self.tensors.items()}
        if self.dtype in FLOATS:
            return part["weight"].float()
        return LOW_TABLES[self.dtype](part, self.width).rows(torch.arange(len(rows_P)))


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardedRows(PublishedTable):
    """A table in files of rows, which together have all of them."""

    pieces: Sequence[Piece]  # each from the row in its `offset` on

    def read(self, rows_P: Tensor) -> Tensor:
        whole_PD = torch.empty(len(rows_P), self.width)
        for piece in self.pieces:
            begin, end = piece.offset[0], piece.offset[0] + piece.raw.shape[0]
            within_P = (rows_P >= begin) & (rows_P < end)
            if bool(within_P.any()):
                whole_PD[within_P] = self._restore(piece.raw[rows_P[within_P] - begin], piece.dtype)
        return whole_PD

    def _restore(self, raw: Tensor, dtype: torch.dtype) -> Tensor:
        """Return rows in fp32 from copies of their bytes."""
        stored = raw.view(dtype)
        if self.dtype in FLOATS:
            return stored.float()
        return LOW_TABLES[self.dtype].restore(stored, self.width)
