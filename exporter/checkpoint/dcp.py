"""Distributed checkpoints (torch DCP): tensors assembled from the chunks that training's ranks wrote.

Torch's own planner finds the chunks of a requested part (`dcp_reader.py`). Torch's file reader is not used,
because it unpickles entries that are no tensors with every class in reach, follows any path that the metadata
names, ignores gaps and overlaps, and holds each chunk in memory.
"""

import io
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor
from typing_extensions import Buffer

from exporter.checkpoint.dcp_metadata import METADATA_NAME, Chunk, StoredTensor, read_metadata
from exporter.checkpoint.dcp_reader import fill_box
from exporter.checkpoint.mapped_tensor import MappedFiles, map_part, map_tensor, own_storage, room_for
from exporter.checkpoint.stored_zip import data_start
from exporter.checkpoint.tensors import HashFiles, Piece, TensorMeta, digest_files, hash_files, raw_of
from exporter.errors import CheckpointUnreadable

MapBytes = Callable[[Path, int, int], Tensor]  # takes a file, the first byte and the number of bytes

_VALUES = re.compile(r"(?:^|/)data/[^/]+$")  # names of the zip entries in which torch.save stores values


class DcpCheckpoint:
    """A folder with the file `.metadata` and the files that it names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stored = read_metadata(folder / METADATA_NAME)
        self._items: dict[tuple[str, int], _Item] = {}
        self._mapped = MappedFiles()

    def tensors(self) -> Mapping[str, TensorMeta]:
        return {name: stored.meta for name, stored in self._stored.items()}

    def read(self, name: str) -> Tensor:
        stored = self._stored[name]
        self._check_places(name, stored, stored.chunks)
        if len(stored.chunks) == 1:
            return own_storage(self._read_chunk(name, stored.chunks[0], stored.meta.dtype))
        return self._fill(room_for(stored.meta), (0,) * len(stored.meta.shape), name, stored)

    def rows(self, name: str, first: int, end: int) -> Tensor:
        stored = self._stored[name]
        _, *inner = stored.meta.shape
        rows = torch.empty((end - first, *inner), dtype=stored.meta.dtype)
        return self._fill(rows, (first, *(0 for _ in inner)), name, stored)

    def pieces(self, name: str) -> tuple[Piece, ...]:
        stored = self._stored[name]
        self._check_places(name, stored, stored.chunks)
        map_bytes = self._mapped.part
        return tuple(self._open_chunk(name, chunk, stored.meta.dtype, map_bytes) for chunk in stored.chunks)

    def digest(self, hashed: HashFiles = hash_files) -> str:
        files = {chunk.file for stored in self._stored.values() for chunk in stored.chunks}
        return digest_files(self._folder, {METADATA_NAME, *files}, hashed)

    def _fill(self, box: Tensor, offset: tuple[int, ...], name: str, stored: StoredTensor) -> Tensor:
        """Fill `box` with the part of a tensor that begins at `offset`, opening only the chunks it needs."""
        part = Chunk(offset=offset, size=tuple(box.shape), file="", start=0, length=0)
        needed = StoredTensor(meta=stored.meta, chunks=tuple(filter(part.overlaps, stored.chunks)))
        self._check_places(name, needed, needed.chunks)
        fill_box(box, offset, name, needed, partial(self._open_chunk, name, dtype=box.dtype))
        return box

    def _check_places(self, name: str, stored: StoredTensor, chunks: Iterable[Chunk]) -> None:
        """Check that the files hold these chunks, before memory is allocated for them."""
        for chunk in chunks:
            self._check_place(name, chunk, stored.meta.dtype)

    def _check_place(self, name: str, chunk: Chunk, dtype: torch.dtype) -> None:
        try:
            size = (self._folder / chunk.file).stat().st_size
        except OSError as error:
            raise self._unreadable(name, chunk, f"the file could not be read: {error.strerror}") from error
        if chunk.start + chunk.length > size:
            raise self._unreadable(
                name, chunk, f"the file ends at byte {size} of {chunk.start + chunk.length}; it is cut short"
            )
        if chunk.volume * dtype.itemsize > chunk.length:
            raise self._unreadable(
                name, chunk, f"{chunk.length} bytes cannot hold {list(chunk.size)} of {dtype}"
            )

    def _read_chunk(self, name: str, chunk: Chunk, dtype: torch.dtype) -> Tensor:
        item = self._item(name, chunk, dtype)
        stored = map_tensor(self._folder / chunk.file, chunk.start + item.start, item.stored)
        return stored.as_strided(item.meta.shape, item.stride, item.offset)

    def _open_chunk(
        self, name: str, chunk: Chunk, dtype: torch.dtype, map_bytes: MapBytes = map_part
    ) -> Piece:
        """Map the bytes of a chunk in place; copy them into order if its last axis is not contiguous."""
        item = self._item(name, chunk, dtype)
        if item.stride[-1:] != (1,):
            raw = raw_of(self._read_chunk(name, chunk, dtype).contiguous())
            return Piece(offset=chunk.offset, raw=raw, dtype=dtype)
        mapped = map_bytes(self._folder / chunk.file, chunk.start + item.start, item.stored.nbytes)
        size = dtype.itemsize
        shape = (*item.meta.shape[:-1], item.meta.shape[-1] * size)
        stride = (*(step * size for step in item.stride[:-1]), 1)
        first = mapped.storage_offset() + item.offset * size
        return Piece(offset=chunk.offset, raw=mapped.as_strided(shape, stride, first), dtype=dtype)

    def _item(self, name: str, chunk: Chunk, dtype: torch.dtype) -> "_Item":
        """Return the position and layout of a chunk's values in its file; each is looked up only once."""
        key = chunk.file, chunk.start
        if key not in self._items:
            self._items[key] = self._read_item(name, chunk, dtype)
        return self._items[key]

    def _read_item(self, name: str, chunk: Chunk, dtype: torch.dtype) -> "_Item":
        path = self._folder / chunk.file
        try:
            with path.open("rb") as file:
                item = _find_tensor(_Slice(file, chunk.start, chunk.length))
        except Exception as error:  # bytes from a stranger may raise any error
            reason = str(error).strip().partition("\n")[0]
            raise self._unreadable(name, chunk, f"{type(error).__name__}: {reason}") from error
        expected = TensorMeta(shape=chunk.size, dtype=dtype)
        if item.meta != expected:
            raise self._unreadable(name, chunk, f"it holds {item.meta} where {METADATA_NAME} says {expected}")
        return item

    def _unreadable(self, name: str, chunk: Chunk, reason: str) -> CheckpointUnreadable:
        return CheckpointUnreadable(
            f"{self._folder / chunk.file}: tensor {name} could not be read: {reason}",
            hint="copy the checkpoint again, or export another step",
            where=name,
        )


@dataclass(frozen=True, kw_only=True)
class _Item:
    """One tensor in the form of torch.save: the position of its values, and their layout."""

    meta: TensorMeta
    stored: TensorMeta  # the whole storage, as a flat tensor
    start: int  # byte of the item at which the storage begins
    stride: tuple[int, ...]  # elements, per axis
    offset: int  # of the tensor in the storage, in elements


def _find_tensor(item: "_Slice") -> _Item:
    """Find a dense tensor in the output of torch.save, without reading its values or running its code."""
    reader = io.BufferedReader(item)
    with zipfile.ZipFile(reader) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("compressed, as torch.save never writes; its size cannot be trusted")
        if sum(entry.file_size for entry in entries) > item.length:
            raise ValueError("claims more bytes than the file has for it")
        values = [entry for entry in entries if _VALUES.search(entry.filename)]
        start = data_start(values[0], reader) if len(values) == 1 else 0
    reader.seek(0)
    with torch.serialization.skip_data():
        tensor = torch.load(reader, map_location="cpu", weights_only=True)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{type(tensor).__name__} where a tensor belongs")
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise TypeError(f"a {tensor.layout} tensor on {tensor.device} where a dense one belongs")
    size = tensor.untyped_storage().nbytes()
    if len(values) != 1 or size != values[0].file_size or start + size > item.length:
        raise ValueError("its values are not where torch.save puts them")
    return _Item(
        meta=TensorMeta(shape=tuple(tensor.shape), dtype=tensor.dtype),
        stored=TensorMeta(shape=(size // tensor.dtype.itemsize,), dtype=tensor.dtype),
        start=start,
        stride=tensor.stride(),
        offset=int(tensor.storage_offset()),
    )


class _Slice(io.RawIOBase):
    """A part of a file, as a file that cannot be read beyond that part."""

    def __init__(self, file: BinaryIO, start: int, length: int) -> None:
        super().__init__()
        self.length = length
        self._file = file
        self._start = start
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.length}[whence]
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset}, before the start")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Buffer, /) -> int:
        target = memoryview(buffer).cast("B")[: max(0, self.length - self._at)]
        self._file.seek(self._start + self._at)
        count = self._file.readinto(target)  # type: ignore[attr-defined]  # of every buffered file
        self._at += count
        return int(count)
