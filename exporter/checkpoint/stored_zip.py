"""Where the data of an uncompressed zip entry lie in its file."""

import zipfile
from typing import BinaryIO

_HEADER = 30  # bytes of an entry's own header, before its name
_NAME, _EXTRA = slice(26, 28), slice(28, 30)  # where the header has the lengths of what follows it


def data_start(entry: zipfile.ZipInfo, file: BinaryIO) -> int:
    """The first byte behind the entry's own header, whose length the archive's directory does not tell."""
    file.seek(entry.header_offset)
    header = file.read(_HEADER)
    following = sum(int.from_bytes(header[field], "little") for field in (_NAME, _EXTRA))
    return entry.header_offset + _HEADER + following
