"""The bytes that tensors must have: the checkpoint's, or made anew from the checkpoint's rows.

Nothing here reads the module that was exported. The checkpoint's bytes come from `Checkpoint.pieces`, box by
box where they are stored, and not from `Checkpoint.read`, which filled the module.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from exporter.checkpoint.mapped_tensor import read_ahead
from exporter.checkpoint.tensors import Piece, TensorMeta, raw_of
from exporter.dtypes import TableDtype
from exporter.readback.compare import PIECE, Box, as_rows, split_rows
from exporter.readback.errors import WeightsDiffer

_THREADS = 2  # that make rows anew

Made = TypeVar("Made")
Remake = Callable[[Tensor], Mapping[str, Tensor]]  # rows of the checkpoint -> bytes, by the tensors' names


class Expected(ABC):
    """The bytes of one tensor, or of several that are made of the same rows."""

    names: tuple[str, ...]  # of the tensors, as in the file
    reference: str = "the checkpoint"
    from_checkpoint: bool = True

    @abstractmethod
    def boxes(self, first: int, end: int) -> Iterator[Box]:
        """Yield the bytes of rows `first` to `end` - 1, in pieces; boxes count rows from `first` on."""


@dataclass(eq=False)
class Stored(Expected):
    """A tensor that is in the file as it is in the checkpoint."""

    name: str
    pieces: Sequence[Piece]

    def __post_init__(self) -> None:
        self.names = (self.name,)

    def boxes(self, first: int, end: int) -> Iterator[Box]:
        for piece in self.pieces:
            size = piece.dtype.itemsize
            raw = as_rows(piece.raw, size)
            begins, *others = piece.offset or (0,)
            inner = (*others[:-1], others[-1] * size) if others else (0,)
            start, stop = max(first - begins, 0), max(end - begins, 0)
            for row, part in split_rows(raw[start:stop]):
                read_ahead(part)
                yield Box(tensor=self.name, raw=part, offset=(begins + start + row - first, *inner))


@dataclass(eq=False)
class Remade(Expected):
    """Tensors that are made of a checkpoint's rows, which are made anew: quantised, or of another dtype."""

    names: tuple[str, ...]
    pieces: Sequence[Piece]
    meta: TensorMeta  # of the checkpoint's tensor
    remake: Remake
    reference: str = "the checkpoint's row, made anew,"

    def boxes(self, first: int, end: int) -> Iterator[Box]:
        _, *inner = self.meta.shape or (1,)
        width = max(1, TensorMeta(shape=tuple(inner), dtype=torch.float32).nbytes)
        step = max(1, PIECE // width)

        def remake(begin: int) -> Mapping[str, Tensor]:
            return self.remake(rows_of(self.pieces, self.meta, begin, min(begin + step, end)))

        for begin, remade in _map_ahead(remake, range(first, end, step)):
            for name, raw in remade.items():
                yield Box(tensor=name, raw=raw, offset=(begin - first, *(0 for _ in raw.shape[1:])))


@dataclass(eq=False)
class Held(Expected):
    """A tensor that no checkpoint has, held in memory."""

    name: str
    values: Tensor
    reference: str = "the traced program"
    from_checkpoint: bool = False

    def __post_init__(self) -> None:
        self.names = (self.name,)

    def boxes(self, first: int, end: int) -> Iterator[Box]:
        values = self.values.detach().cpu().contiguous()
        raw = as_rows(raw_of(values), values.dtype.itemsize)[first:end]
        for row, part in split_rows(raw):
            yield Box(tensor=self.name, raw=part, offset=(row, *(0 for _ in part.shape[1:])))


def _map_ahead(remake: Callable[[int], Made], places: Sequence[int]) -> Iterator[tuple[int, Made]]:
    """Yield each place with what is made there, a few places ahead: one thread reads while others compute."""
    if len(places) < 2:
        yield from ((place, remake(place)) for place in places)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        pending: deque[tuple[int, Future[Made]]] = deque()
        for place in places:
            pending.append((place, pool.submit(remake, place)))
            if len(pending) > _THREADS:
                first, made = pending.popleft()
                yield first, made.result()
        yield from ((place, made.result()) for place, made in pending)


def rows_of(pieces: Sequence[Piece], meta: TensorMeta, first: int, end: int) -> Tensor:
    """Return rows of a tensor, assembled from the pieces that hold them.

    Raises:
        WeightsDiffer: the pieces do not hold each of them once.
    """
    rows = torch.empty((end - first, *meta.shape[1:]), dtype=meta.dtype)
    raw = as_rows(raw_of(rows), meta.dtype.itemsize)
    left = raw.numel()
    for box in Stored("", pieces).boxes(first, end):
        part = raw
        for axis, (start, length) in enumerate(zip(box.offset, box.raw.shape, strict=True)):
            part = part.narrow(axis, start, length)
        part.copy_(box.raw)
        left -= box.raw.numel()
    if left:
        raise WeightsDiffer(f"the checkpoint's pieces do not hold each of the rows {first} to {end - 1} once")
    return rows


def cast_to(name: str, dtype: torch.dtype) -> Remake:
    """Return what makes rows of another dtype, rounded to the nearest number."""
    return lambda rows: {name: as_rows(raw_of(rows.to(dtype)), dtype.itemsize)}


def quantise_to(dtype: TableDtype, names: Mapping[str, str], width: int) -> Remake:
    """Return what quantises rows as fbgemm does, row by row.

    `names` gives the tensors' names by part: `weight` of fp16, else `codes` and `scale_offset`; or `fused`,
    which has the codes and then the scale and offset of each row.
    """

    def quantise(rows: Tensor) -> Mapping[str, Tensor]:
        if dtype is TableDtype.FP16:
            [name] = names.values()
            return {name: raw_of(rows.to(torch.float16))}
        if dtype is TableDtype.INT8:
            fused, codes = torch.ops.fbgemm.FloatOrHalfToFused8BitRowwiseQuantized(rows.float()), width
        else:
            fours = torch.arange(-(-width // 4) * 4).clamp(max=width - 1)  # a row is filled up with its last
            fused = torch.ops.fbgemm.FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf(
                rows.float()[:, fours].contiguous(), 4
            )
            codes = len(fours) // 2
        parts = {"fused": fused, "codes": fused[:, :codes], "scale_offset": fused[:, codes:]}
        return {name: parts[part] for part, name in names.items()}

    return quantise
