"""Embedding table whose rows stay in files, in pieces; only the rows that are looked up become a tensor."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from exporter.checkpoint.tensors import Piece, TensorMeta
from exporter.config.schema import Pooling
from exporter.dtypes import TableDtype
from exporter.models.embedding.tables import (
    LOW_TABLES,
    EmbeddingTable,
    dtype_of_floats,
    loses_precision,
    pool_rows,
)


class TableInPieces(EmbeddingTable):
    """Embedding table without parameters, which takes the place of one that holds all rows.

    Pieces are as trained, or fused in the dtype `kept_in`; rows as trained are rounded as if kept in it.
    """

    def __init__(self, meta: TensorMeta, pieces: Sequence[Piece], kept_in: TableDtype | None = None) -> None:
        """Take pieces that together cover a table of this shape and dtype; by default it is kept so."""
        super().__init__()
        self.meta = meta
        self.trained = dtype_of_floats(meta.dtype)
        self.kept_in = kept_in or self.trained
        self._pieces = _Pieces(pieces)

    def rows(self, ids_V: Tensor) -> Tensor:
        places_V, rows = self.look_up(ids_V)
        return F.embedding(places_V, rows)

    def bags(
        self, ids_V: Tensor, offsets: Tensor, pooling: Pooling, weights_V: Tensor | None = None
    ) -> Tensor:
        places_V, rows = self.look_up(ids_V)
        return pool_rows(places_V, rows, offsets, pooling, weights_V)

    def look_up(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids as row numbers of a small table of only the looked-up rows, and that table."""
        wanted, places = ids.unique(return_inverse=True)
        if not len(wanted):  # operators over bags need a row, even if no id names it
            wanted = wanted.new_zeros(1)
        kept_in = self.kept_in if loses_precision(self.trained, self.kept_in) else None
        return places, self._pieces.rows(wanted.cpu(), self.meta, kept_in).to(ids.device)

    def extra_repr(self) -> str:
        return str(self.meta)


class _Pieces:
    """Mapped files, kept out of the module's tensors so that nothing copies or moves them with the module."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = tuple(pieces)

    def __deepcopy__(self, memo: object) -> "_Pieces":
        return self

    def rows(self, wanted: Tensor, meta: TensorMeta, rounded_to: TableDtype | None) -> Tensor:
        """Return rows of the table, in fp32, by their numbers in ascending order.

        With `rounded_to`, rows are what that dtype keeps of them, whether their piece is in it or not.

        Raises:
            IndexError: the table has no such row, or its pieces do not cover one exactly once.
        """
        count, whole = meta.shape
        if wanted[0] < 0 or wanted[-1] >= count:
            odd = wanted[0] if wanted[0] < 0 else wanted[-1]
            raise IndexError(f"row {int(odd)} of a table that has {count} rows")
        found = torch.empty((len(wanted), whole))
        filled = torch.zeros(len(wanted), dtype=torch.int64)  # values found of each row
        as_kept = torch.full((len(wanted),), rounded_to is None)
        for piece in self._pieces:
            (first, left), (rows, width) = piece.offset, piece.shape
            begin, end = torch.searchsorted(wanted, torch.tensor([first, first + rows])).tolist()
            if begin == end:
                continue
            stored = piece.rows(wanted[begin:end] - first)
            if piece.dtype.is_floating_point:
                found[begin:end, left : left + width] = stored
                filled[begin:end] += width
            else:
                assert rounded_to is not None
                found[begin:end] = LOW_TABLES[rounded_to].restore(stored, whole)
                filled[begin:end] += whole
            as_kept[begin:end] |= piece.dtype != meta.dtype
        if len(gaps := wanted[filled != whole]):
            raise IndexError(f"the pieces of the table do not cover row {int(gaps[0])} exactly once")
        if not as_kept.all():
            assert rounded_to is not None
            low = LOW_TABLES[rounded_to]
            found[~as_kept] = low.restore(low.fuse(found[~as_kept]), whole)
        return found
