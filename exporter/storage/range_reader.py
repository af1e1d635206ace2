"""A stored file as a Python file that is read at any position: each read asks the store for one range."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ReadRange = Callable[[int, int], bytes]  # from the first position up to the second, which is left out


class RangeReader(io.RawIOBase):
    """Reads a file of `size` bytes by ranges and holds none of it; a read at its end returns nothing."""

    def __init__(self, read_range: ReadRange, size: int) -> None:
        self._read_range = read_range
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        end = min(self._position + len(view), self._size)
        if end <= self._position:
            return 0
        data = self._read_range(self._position, end)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)
