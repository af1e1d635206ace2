"""The bytes that maps of ids must have, made anew from what training's ranks wrote, not as the module did."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exporter.checkpoint.keymap import FREE_ID
from exporter.checkpoint.mapped_tensor import room_for
from exporter.checkpoint.tensors import Piece, TensorMeta, raw_of
from exporter.readback.compare import PIECE, Box, as_rows
from exporter.readback.expected import Expected

_NUMBER = torch.int64.itemsize


@dataclass(eq=False)
class MergedMap(Expected):
    """A map whose parts, one per rank and each in ascending order, are merged: equal ids by rank.

    Of each entry the place in the whole is computed, by counting the smaller ids of every part; nothing is
    sorted.
    """

    names: tuple[str, ...]  # of the ids, and of their rows
    ids: Sequence[Piece]
    rows: Sequence[Piece]
    reference: str = "the checkpoint's map, merged anew,"

    def boxes(self, first: int, end: int) -> Iterator[Box]:
        ids_name, rows_name = self.names
        stored_ids, stored_rows = _whole(self.ids), _whole(self.rows)
        bounds = sorted({(piece.offset[0], piece.offset[0] + piece.shape[0]) for piece in self.ids})
        parts = [stored_ids[begin:until] for begin, until in bounds]
        for number, (begin, until) in enumerate(bounds):
            for start in range(begin, until, PIECE // _NUMBER):
                stop = min(start + PIECE // _NUMBER, until)
                ids = stored_ids[start:stop]
                places = torch.arange(start - begin, stop - begin)
                for other, part in enumerate(parts):
                    if other != number:
                        places += torch.searchsorted(part, ids, right=other < number)
                wanted = (places >= first) & (places < end)
                for name, values in ((ids_name, ids), (rows_name, stored_rows[start:stop])):
                    yield _scattered(name, values[wanted], places[wanted] - first)


@dataclass(eq=False)
class SortedKeys(Expected):
    """A map of the keys that training's ranks wrote in no order, each with the row that it was written with.

    The last row is that of a free slot, which unknown ids share.
    """

    names: tuple[str, ...]
    keys: Sequence[Tensor]  # of each rank
    reference: str = "the checkpoint's keys, sorted anew,"

    def boxes(self, first: int, end: int) -> Iterator[Box]:
        ids_name, rows_name = self.names
        keys = np.concatenate([*(each.numpy() for each in self.keys), np.array([FREE_ID])])
        order = np.argsort(keys, kind="stable")
        for start in range(first, end, PIECE // _NUMBER):
            rows = order[start : min(start + PIECE // _NUMBER, end)]
            places = torch.arange(start - first, start - first + len(rows))
            yield _scattered(ids_name, torch.from_numpy(keys[rows]), places)
            yield _scattered(rows_name, torch.from_numpy(rows), places)


def _scattered(name: str, values: Tensor, places: Tensor) -> Box:
    return Box(tensor=name, raw=as_rows(raw_of(values.contiguous()), _NUMBER), offset=(0, 0), rows=places)


def _whole(pieces: Sequence[Piece]) -> Tensor:
    """Return the numbers of all pieces: as they are mapped, or copied to an unnamed file to be in order."""
    count = sum(piece.shape[0] for piece in pieces)
    if len(pieces) == 1 and pieces[0].raw.storage_offset() % _NUMBER == 0:
        return pieces[0].raw.view(torch.int64)
    whole = room_for(TensorMeta(shape=(count,), dtype=torch.int64))
    for piece in pieces:
        first = piece.offset[0]
        whole[first : first + piece.shape[0]].view(torch.uint8).copy_(piece.raw)
    return whole
