"""Compare tensors in a file with the bytes that they must have, piece by piece, and name what differs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exporter.checkpoint.mapped_tensor import read_ahead
from exporter.readback.errors import WeightsDiffer

PIECE = 4 << 20  # bytes that are compared at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """A tensor in a file: its bytes, of which each row is an entry of the first axis."""

    raw: Tensor  # uint8, at least two axes, the last one in bytes; see `as_rows`
    dtype: torch.dtype
    is_flat: bool = False  # the tensor has one axis, or none: its rows are single numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class Box:
    """The bytes that a part of a tensor must have: from a row on, or in rows of these numbers."""

    tensor: str
    raw: Tensor  # uint8, as many axes as `Found.raw`
    offset: tuple[int, ...]  # per axis, the last one in bytes; its first is not used beside `rows`
    rows: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Place:
    """A file and a tower in words, for the message on a difference."""

    title: str  # of the tower
    file: str


def as_rows(raw: Tensor, itemsize: int) -> Tensor:
    """View a tensor's bytes with an axis of rows: those of one axis, or none, become a row per number."""
    return raw.reshape(-1, itemsize) if raw.dim() < 2 else raw


def split_rows(raw: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield bytes in pieces of at most PIECE bytes, but at least a row, each with its first row's number."""
    per_row = max(1, raw[:1].numel())
    step = max(1, PIECE // per_row)
    for first in range(0, raw.shape[0], step):
        yield first, raw[first : first + step]


def compare_boxes(
    found: Mapping[str, Found], boxes: Iterator[Box], place: Place, reference: str, *, first_row: int = 0
) -> None:
    """Compare each box with the tensor that it names; the boxes must cover each of them.

    `reference` says whose the boxes are, and `first_row` is the number of the tensors' first row, for the
    message on a difference.

    Raises:
        WeightsDiffer: names the tensor, the row, the column, and both values.
    """
    covered = dict.fromkeys(found, 0)
    for box in boxes:
        if (tensor := found.get(box.tensor)) is None:  # the code does not read it
            continue
        part = _part(tensor.raw, box)
        read_ahead(part)
        if not _equal(part, box.raw):
            raise _difference(tensor, box, part, place, reference, first_row)
        covered[box.tensor] += box.raw.numel()
    for name, count in covered.items():
        if count != found[name].raw.numel():
            raise WeightsDiffer(
                f"{place.title}: {place.file}: {name} has {found[name].raw.numel()} bytes, and {reference} "
                f"has {count} of them",
                where=name,
            )


def _part(raw: Tensor, box: Box) -> Tensor:
    part = raw if box.rows is None else raw.index_select(0, box.rows)
    for axis, (start, length) in enumerate(zip(box.offset, box.raw.shape, strict=True)):
        if axis or box.rows is None:
            part = part[(slice(None),) * axis + (slice(start, start + length),)]
    return part


def _equal(found: Tensor, expected: Tensor) -> bool:
    """Compare bytes with numpy, which is several times as fast as torch on them."""
    return found.shape == expected.shape and np.array_equal(found.numpy(), expected.numpy())


def _difference(
    tensor: Found, box: Box, part: Tensor, place: Place, reference: str, first_row: int
) -> WeightsDiffer:
    if part.shape != box.raw.shape:
        return WeightsDiffer(
            f"{place.title}: {place.file}: {box.tensor} ends within rows that {reference} has",
            where=box.tensor,
        )
    at = (part != box.raw).nonzero()[0].tolist()
    row = at[0] + box.offset[0] if box.rows is None else int(box.rows[at[0]])
    size = tensor.dtype.itemsize
    number = at[-1] // size
    column = number + box.offset[-1] // size
    middle = [index + start for index, start in zip(at[1:-1], box.offset[1:-1], strict=True)]
    values = []
    for raw in (part, box.raw):
        last = raw[tuple(at[:-1])][number * size : (number + 1) * size].clone()
        values.append(last.view(tensor.dtype).item())
    where = f"number {row + first_row}" if tensor.is_flat else f"row {row + first_row}, "
    where += "" if tensor.is_flat else f"column {', '.join(map(str, (*middle, column)))}"
    same = " (the same number in other bits)" if values[0] == values[1] else ""
    return WeightsDiffer(
        f"{place.title}: {place.file}: {box.tensor}: {where}: {values[0]!r} was written, and {reference} has "
        f"{values[1]!r}{same}",
        where=box.tensor,
    )
