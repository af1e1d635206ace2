"""A file in memory, as pages that all processes share and none can write."""

import ctypes
import mmap
import os
from pathlib import Path

import torch
from torch import Tensor

from slipway.loading.dtypes import dtype_of
from slipway.loading.errors import ArtifactDamaged
from slipway.loading.layout.index import PlacedTensor

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_FAILED = ctypes.c_void_p(-1).value
_RESIDENT = 1  # bit of a page in mincore's answer


class MappedFile:
    """A mapped file. Its tensors must not be used after `close`.

    Python's mmap is not used: torch takes no read-only buffer of it without a warning, and whether it is
    unmapped would depend on references that a runner of torch 2.13 never gives back.
    """

    def __init__(self, path: Path, size: int) -> None:
        """Map the first `size` bytes of a file, which must have them.

        Raises:
            ArtifactDamaged: the file cannot be opened or mapped, or is shorter.
        """
        self.path, self.size = path, size
        self._address = 0
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ArtifactDamaged(f"{path} cannot be read: {error.strerror}", where=str(path)) from error
        try:
            found = os.fstat(descriptor).st_size
            if found < size:
                raise ArtifactDamaged(f"{path} has {found:,} bytes instead of {size:,}", where=str(path))
            if size:
                self._address = self._map(descriptor)
        finally:
            os.close(descriptor)

    def _map(self, descriptor: int) -> int:
        address = _LIBC.mmap(None, self.size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED or address is None:
            reason = os.strerror(ctypes.get_errno())
            raise ArtifactDamaged(f"{self.path} cannot be mapped: {reason}", where=str(self.path))
        return int(address)

    def tensor(self, placed: PlacedTensor) -> Tensor:
        """Return a tensor in the file, without a copy."""
        dtype = dtype_of(placed.dtype)
        if not placed.nbytes:
            return torch.empty(placed.shape, dtype=dtype)
        buffer = (ctypes.c_ubyte * placed.nbytes).from_address(self._address + placed.offset)
        values = torch.frombuffer(buffer, dtype=torch.uint8).view(dtype)
        return values.as_strided(placed.shape, placed.stride)

    def holds(self, tensor: Tensor) -> bool:
        """Return whether a tensor's values lie in the file."""
        return 0 <= tensor.data_ptr() - self._address < self.size

    def resident_pages(self) -> bytes:
        """Return a byte for each page of the file: 1 if it is in memory, for this process or another."""
        pages = -(-self.size // mmap.PAGESIZE)
        found = ctypes.create_string_buffer(pages)
        if not self._address or _LIBC.mincore(self._address, self.size, found):
            return bytes([_RESIDENT]) * pages
        return found.raw

    def close(self) -> None:
        """Unmap the file; reading a tensor of it then ends the process."""
        address, self._address = self._address, 0
        if address:
            _LIBC.munmap(address, self.size)
