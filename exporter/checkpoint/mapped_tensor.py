"""Tensors whose values stay in files: read page by page when touched, and dropped when memory is needed.

What is mapped is private to the process: a write would change a copy of the page, never the file. No memory
is set aside for such writes, which nobody means to do: a file may be larger than the machine's memory.
"""

import mmap
import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from exporter.checkpoint.tensors import TensorMeta

_SMALL = 1 << 20  # bytes; below this, memory costs less than a mapping
_NORESERVE = 0x4000  # MAP_NORESERVE of Linux, which Python's mmap does not name before 3.13


def map_tensor(path: Path, start: int, meta: TensorMeta) -> Tensor:
    """The tensor whose values begin at byte `start` of a file, contiguous; the file must hold all of them.

    Where they begin at no multiple of an element's size, compiled code could not read them in place, and
    they are copied: into memory, or where they are large, into an unnamed file.
    """
    values = map_part(path, start, meta.nbytes)
    if meta.nbytes >= _SMALL and start % meta.dtype.itemsize == 0:
        return values.view(meta.dtype).reshape(meta.shape)
    whole = room_for(meta)
    whole.reshape(-1).view(torch.uint8).copy_(values)
    return whole


def room_for(meta: TensorMeta) -> Tensor:
    """A tensor to be filled; a large one lies in a file without a name below TMPDIR, and goes with it."""
    if meta.nbytes < _SMALL:
        return torch.empty(meta.shape, dtype=meta.dtype)
    with tempfile.TemporaryFile() as file:
        file.truncate(meta.nbytes)
        room = mmap.mmap(file.fileno(), meta.nbytes)
    return torch.frombuffer(room, dtype=meta.dtype).reshape(meta.shape)


class MappedFiles:
    """Files of which many parts are looked at for long: each is mapped once.

    A process may have some ten thousand mappings, and a checkpoint more chunks.
    """

    def __init__(self) -> None:
        self._files: dict[Path, Tensor] = {}

    def part(self, path: Path, start: int, size: int) -> Tensor:
        """`size` bytes of a file from `start` on; the file must hold all of them."""
        if path not in self._files:
            with path.open("rb") as file:
                self._files[path] = map_bytes(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        return self._files[path][start : start + size]


def map_part(path: Path, start: int, size: int) -> Tensor:
    """`size` bytes of a file from `start` on, mapped for as long as the tensor is held."""
    with path.open("rb") as file:
        return map_bytes(file.fileno(), start, size)


def map_bytes(descriptor: int, start: int, size: int) -> Tensor:
    """`size` bytes of an open file from `start` on."""
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    skipped = start % mmap.ALLOCATIONGRANULARITY
    mapping = mmap.mmap(
        descriptor,
        size + skipped,
        flags=mmap.MAP_PRIVATE | _NORESERVE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
        offset=start - skipped,
    )
    return torch.frombuffer(mapping, dtype=torch.uint8, count=size, offset=skipped)
