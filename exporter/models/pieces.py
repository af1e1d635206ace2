"""A table that is looked up where it lies, in pieces: only the rows that are asked for become a tensor."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from exporter.checkpoint.tensors import Piece, TensorMeta


class TableInPieces(nn.Module):
    """An embedding table of no parameters, in place of one that holds all of its rows."""

    def __init__(self, meta: TensorMeta, pieces: Sequence[Piece]) -> None:
        """Look rows up in `pieces`, boxes that cover a table of this shape and dtype."""
        super().__init__()
        self._meta = meta
        self._pieces = _Pieces(pieces)

    def look_up(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The ids as rows of a table that holds no others, and that table."""
        wanted, places = ids.unique(return_inverse=True)
        if not len(wanted):  # operators of bags want a row, though no id is there to name it
            wanted = wanted.new_zeros(1)
        return places, self._pieces.rows(wanted.cpu(), self._meta).to(ids.device)

    def extra_repr(self) -> str:
        return str(self._meta)


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
