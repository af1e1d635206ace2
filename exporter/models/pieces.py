"""A table that is looked up where it lies, in pieces: only the rows that are asked for become a tensor."""

from collections.abc import Sequence

import torch
from torch import Tensor

from exporter.checkpoint.tensors import Piece, TensorMeta
from exporter.config.schema import Pooling
from exporter.dtypes import TableDtype
from exporter.models.tables import Table, pooled


class TableInPieces(Table):
    """Rows as training has them, in boxes of files; it has no parameters."""

    dtype = TableDtype.FP32

    def __init__(self, meta: TensorMeta, pieces: Sequence[Piece]) -> None:
        """Look rows up in `pieces`, which cover a table of this shape and dtype."""
        super().__init__()
        self.meta = meta
        self._pieces = _Pieces(pieces)

    def rows(self, ids_V: Tensor) -> Tensor:
        places_V, rows_WD = self.look_up(ids_V)
        return rows_WD[places_V]

    def bags(
        self, ids_V: Tensor, offsets: Tensor, pooling: Pooling, weights_V: Tensor | None = None
    ) -> Tensor:
        places_V, rows_WD = self.look_up(ids_V)
        return pooled(places_V, rows_WD, offsets, pooling, weights_V)

    def look_up(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The ids as rows of a table that holds no others, and that table."""
        wanted, places = ids.unique(return_inverse=True)
        if not len(wanted):  # operators of bags want a row, though no id is there to name it
            wanted = wanted.new_zeros(1)
        return places, self._pieces.rows(wanted.cpu(), self.meta).to(ids.device)

    def extra_repr(self) -> str:
        return str(self.meta)


class _Pieces:
    """Mapped files, kept out of the module's own tensors: nobody is to copy or move them with it."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = tuple(pieces)

    def __deepcopy__(self, memo: object) -> "_Pieces":
        return self

    def rows(self, wanted: Tensor, meta: TensorMeta) -> Tensor:
        """Rows of the table, by their numbers in ascending order."""
        found = torch.empty((len(wanted), meta.shape[1]), dtype=meta.dtype)
        for piece in self._pieces:
            (first, left), (rows, width) = piece.offset, piece.shape
            begin, end = torch.searchsorted(wanted, torch.tensor([first, first + rows])).tolist()
            if begin < end:
                found[begin:end, left : left + width] = piece.rows(wanted[begin:end] - first)
        return found
