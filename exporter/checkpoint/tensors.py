"""What is known of a checkpoint's tensors before they are read, and the digest of its files."""

import hashlib
import math
from collections.abc import Iterable
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
    """A box of a tensor, looked at where it lies."""

    offset: tuple[int, ...]  # of the box in the tensor, per axis
    values: Tensor

    @property
    def end(self) -> int:
        """The first row behind it."""
        return self.offset[0] + self.values.shape[0]


def digest_files(folder: Path, names: Iterable[str]) -> str:
    """One sha256 over the files' names and contents, whatever the order they are given in."""
    total = hashlib.sha256()
    for name in sorted(names):
        try:
            with (folder / name).open("rb") as file:
                total.update(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n".encode())
        except OSError as error:
            raise CheckpointUnreadable(
                f"{folder / name} could not be read: {error.strerror}", where=name
            ) from error
    return total.hexdigest()
