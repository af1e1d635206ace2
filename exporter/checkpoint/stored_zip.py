"""Find the data of an uncompressed zip entry in its file."""

import zipfile
from typing import BinaryIO

_HEADER = 30  # bytes of an entry's local header, without its name and extra field
_NAME, _EXTRA = slice(26, 28), slice(28, 30)  # positions in the header of the lengths of name and extra field


def data_start(entry: zipfile.ZipInfo, file: BinaryIO) -> int:
    """Return the position of an entry's first data byte, which the archive's directory does not contain."""
    file.seek(entry.header_offset)
    header = file.read(_HEADER)
    following = sum(int.from_bytes(header[field], "little") for field in (_NAME, _EXTRA))
    return entry.header_offset + _HEADER + following
