"""Tensors whose values stay in files: read page by page when touched, and dropped when memory is needed.

Mappings are private to the process: a write would change a copy of the page, never the file. No memory is
reserved for such copies, because nothing writes and a file may be larger than the machine's memory.
"""

import ctypes
import mmap
import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from exporter.checkpoint.tensors import TensorMeta

_SMALL = 1 << 20  # bytes; smaller tensors are copied, which costs less than a mapping
_LIBC = ctypes.CDLL(None)
_NORESERVE = 0x4000  # MAP_NORESERVE of Linux, which Python's mmap does not name before 3.13


def map_tensor(path: Path, start: int, meta: TensorMeta) -> Tensor:
    """Return the contiguous tensor whose values begin at byte `start` of a file, which must hold all of them.

    Values that begin at no multiple of an element's size are copied, because compiled code cannot read them
    in place: into memory or, if they are large, into an unnamed file.
    """
    values = map_part(path, start, meta.nbytes)
    if meta.nbytes >= _SMALL and start % meta.dtype.itemsize == 0:
        return values.view(meta.dtype).reshape(meta.shape)
    whole = room_for(meta)
    whole.reshape(-1).view(torch.uint8).copy_(values)
    return whole


def room_for(meta: TensorMeta) -> Tensor:
    """Return an unfilled tensor; a large one lies in an unnamed file below TMPDIR, which is freed with it."""
    if meta.nbytes < _SMALL:
        return torch.empty(meta.shape, dtype=meta.dtype)
    with tempfile.TemporaryFile() as file:
        file.truncate(meta.nbytes)
        room = mmap.mmap(file.fileno(), meta.nbytes)
    return torch.frombuffer(room, dtype=meta.dtype).reshape(meta.shape)


def own_storage(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy if it covers only a part of its storage or is not contiguous."""
    if tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes:
        return tensor
    whole = room_for(TensorMeta(shape=tuple(tensor.shape), dtype=tensor.dtype))
    return whole.copy_(tensor)


class MappedFiles:
    """Files that are mapped once each, for many parts that are used for a long time.

    A process may have some ten thousand mappings, and a checkpoint may have more chunks.
    """

    def __init__(self) -> None:
        self._files: dict[Path, Tensor] = {}

    def part(self, path: Path, start: int, size: int) -> Tensor:
        """Return `size` bytes of a file from `start` on; the file must hold all of them."""
        if path not in self._files:
            with path.open("rb") as file:
                self._files[path] = map_bytes(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        return self._files[path][start : start + size]


def map_part(path: Path, start: int, size: int) -> Tensor:
    """Return `size` bytes of a file from `start` on, mapped for as long as the tensor is held."""
    with path.open("rb") as file:
        return map_bytes(file.fileno(), start, size)


def map_bytes(descriptor: int, start: int, size: int) -> Tensor:
    """Return `size` bytes of an open file from `start` on, mapped."""
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


def read_ahead(values: Tensor) -> None:
    """Let the kernel read these bytes of a mapped file, and as many behind them, in large requests.

    It would otherwise read a little around each page that is touched. Advice that it does not take is lost.
    """
    if values.nbytes >= _SMALL and values.is_contiguous():
        start = values.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
        size = values.data_ptr() + 2 * values.nbytes - start
        _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_WILLNEED)
