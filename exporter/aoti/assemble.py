"""Assemble a package from compiled code and weights, which are streamed into it in bounded pieces.

AOTInductor's own packaging holds every weight in memory at least once. Here weights are copied from where
they lie, mostly mapped files, into the archive, and the digest is computed while writing.
"""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor
from typing_extensions import Buffer

from exporter.aoti.constants import Constant, find_mismatch
from exporter.errors import WeightsDoNotFit

PIECE = 8 << 20  # bytes of a weight that are copied at a time
BLOB_SUFFIX = "wrapper_weights.blob"
CODE_FOLDER = "data/aotinductor/model"  # folder of the code, below the archive's root folder

_ZEROS = bytes(PIECE)
_ALIGNMENT = 64  # of the blob in the file, in bytes, so that weights can be mapped
ARCHIVE_MARKS = {  # further files that torch expects in an archive
    "archive_format": b"pt2",
    "archive_version": b"0",
    "byteorder": b"little",
    ".data/version": b"6\n",
    ".data/serialization_id": b"0" * 40,
}


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A file that was just written: its path, size and digest."""

    path: Path
    size: int  # bytes
    sha256: str


def assemble_package(
    code: Mapping[str, bytes], table: Sequence[Constant], tensors: Mapping[str, Tensor], path: Path
) -> WrittenFile:
    """Write the package at `path`: the files of `code` by name, and a blob of the tensors in `table`.

    Raises:
        WeightsDoNotFit: a tensor is missing, or not of the shape, dtype and strides in the table.
    """
    if misfit := find_mismatch(table, tensors):
        raise WeightsDoNotFit(f"the weights do not fit the compiled code: {misfit}")
    path.parent.mkdir(parents=True, exist_ok=True)
    root = path.stem
    with path.open("wb") as file:
        sink = _DigestingWriter(file)
        with zipfile.ZipFile(sink, "w") as archive:
            for name, data in ARCHIVE_MARKS.items():
                archive.writestr(zipfile.ZipInfo(f"{root}/{name}"), data)
            for name, data in code.items():
                if not name.endswith(BLOB_SUFFIX):
                    archive.writestr(zipfile.ZipInfo(f"{root}/{CODE_FOLDER}/{name}"), data)
            for name in (
                name for name in code if name.endswith(BLOB_SUFFIX)
            ):  # there is no blob without weights
                blob = _aligned_entry(f"{root}/{CODE_FOLDER}/{name}", sink.size)
                with archive.open(blob, "w", force_zip64=True) as entry:
                    for piece in blob_pieces(table, tensors):
                        entry.write(piece)
        file.truncate(sink.size)  # sets the size if the file ends in a hole
    return WrittenFile(path=path, size=sink.size, sha256=sink.digest.hexdigest())


def blob_pieces(table: Sequence[Constant], tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """Yield the blob's bytes in order, in views of at most PIECE bytes."""
    for constant in table:
        values = tensors[constant.fqn].detach().reshape(-1).view(torch.uint8)
        for start in range(0, values.numel(), PIECE):
            yield values[start : start + PIECE].cpu().numpy().data
        yield memoryview(bytes(constant.size - values.numel()))


def _aligned_entry(name: str, at: int) -> zipfile.ZipInfo:
    """Return an entry that begins at byte `at` and is padded so that its data are aligned."""
    info = zipfile.ZipInfo(name)
    header = 30 + len(name.encode()) + 20  # what zip64 adds to a local header is 20 bytes
    padding = -(at + header + 4) % _ALIGNMENT
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    return info


class _DigestingWriter(io.RawIOBase):
    """Writes to a file, digests the bytes, and leaves holes for pieces that are all zeros.

    It is not seekable, so that `zipfile` writes the archive from front to back, with sizes after the data.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self.size = 0
        self.digest = hashlib.sha256()
        self._file = file

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data).cast("B")
        self.digest.update(view)
        if len(view) == PIECE and not view[0] and bytes(view) == _ZEROS:  # bytes, as comparing a view is slow
            self._file.seek(len(view), io.SEEK_CUR)
        else:
            self._file.write(view)
        self.size += len(view)
        return len(view)
