"""Shapes, dtypes and stored pieces of a checkpoint's tensors, and the digest of its files."""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from exporter.errors import CheckpointUnreadable


@dataclass(frozen=True, kw_only=True)
class TensorMeta:
    """A tensor's shape and dtype."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A box of a tensor, mapped where it is stored.

    Its values are bytes along the last axis, because a file may hold numbers at unaligned positions.
    """

    offset: tuple[int, ...]  # of the box in the tensor, per axis
    raw: Tensor  # uint8, the last axis in bytes
    dtype: torch.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        *outer, last = self.raw.shape
        return (*outer, last // self.dtype.itemsize)

    def part(self, starts: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """Return the bytes of the part of these lengths that begins at `starts`, per axis of the piece."""
        part = self.raw
        for axis, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            size = self.dtype.itemsize if axis == part.dim() - 1 else 1
            part = part.narrow(axis, start * size, length * size)
        return part

    def outside(self, first: int, end: int) -> "tuple[Piece, ...]":
        """Return the parts of the piece that hold the tensor's rows before `first` and from `end` on."""
        start, stop = self.offset[0], self.offset[0] + self.shape[0]
        cuts = ((start, min(stop, first)), (max(start, end), stop))
        return tuple(
            Piece(
                offset=(begin, *self.offset[1:]),
                raw=self.raw[begin - start : until - start],
                dtype=self.dtype,
            )
            for begin, until in cuts
            if begin < until
        )

    def rows(self, numbers: Tensor) -> Tensor:
        """Copy the rows of these numbers, counted within the piece, into a tensor of the piece's dtype."""
        return self.raw.index_select(0, numbers).view(self.dtype)


def raw_of(values: Tensor) -> Tensor:
    """View a contiguous tensor as uint8 along its last axis; a single number gets one axis."""
    return values.reshape(*values.shape[:-1], -1).view(torch.uint8)


def shape_raw(values: Tensor, meta: TensorMeta) -> Tensor:
    """Shape a tensor's bytes as its rows, with the last axis in bytes; a single number gets one axis."""
    if not meta.shape:
        return values
    return values.reshape(*meta.shape[:-1], meta.shape[-1] * meta.dtype.itemsize)


HashFiles = Callable[[Sequence[Path]], list[str]]  # returns the sha256 of each file


def hash_files(paths: Sequence[Path]) -> list[str]:
    """Return the sha256 of each file.

    Raises:
        CheckpointUnreadable: a file does not exist or cannot be read.
    """
    return [hash_file(path) for path in paths]


def hash_file(path: Path) -> str:
    """Return the sha256 of one file; raise CheckpointUnreadable if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointUnreadable(f"{path} could not be read: {error.strerror}", where=path.name) from error


def digest_files(folder: Path, names: Iterable[str], hashed: HashFiles = hash_files) -> str:
    """Return one sha256 over the files' names and contents, in whatever order they are given."""
    ordered = sorted(names)
    digests = hashed([folder / name for name in ordered])
    lines = (f"{digest}  {name}\n" for digest, name in zip(digests, ordered, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
