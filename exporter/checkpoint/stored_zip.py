"""Find the data of an uncompressed zip entry in its file, and the size of the file's directory."""

import io
import re
import zipfile
from typing import BinaryIO

_HEADER = 30  # bytes of an entry's local header, without its name and extra field
_NAME, _EXTRA = slice(26, 28), slice(28, 30)  # positions in the header of the lengths of name and extra field
_END, _END64 = b"PK\x05\x06", b"PK\x06\x06"  # signatures of the directory's end, in 32 and in 64 bits
_IN_64_BITS = 0xFFFFFFFF  # a size that stands in the record of 64 bits
_LONGEST_END = (1 << 16) + 200  # bytes: the end's records, with the longest comment


def directory_bytes(file: BinaryIO) -> int:
    """Return the size of a zip's directory, which is read into memory as a whole when the zip is opened.

    Raises:
        BadZipFile: the file does not end like a zip.
    """
    file.seek(max(0, file.seek(0, io.SEEK_END) - _LONGEST_END))
    end = file.read(_LONGEST_END)
    if _END not in end:
        raise zipfile.BadZipFile("File is not a zip file")
    # The largest that any reader could find, whichever of several records it takes for the last one.
    sizes = [int.from_bytes(end[at.end() + 8 : at.end() + 12], "little") for at in re.finditer(_END, end)]
    long = [int.from_bytes(end[at.end() + 36 : at.end() + 44], "little") for at in re.finditer(_END64, end)]
    return max(0, *long, *(size for size in sizes if size != _IN_64_BITS))


def data_start(entry: zipfile.ZipInfo, file: BinaryIO) -> int:
    """Return the position of an entry's first data byte, which the archive's directory does not contain."""
    file.seek(entry.header_offset)
    header = file.read(_HEADER)
    following = sum(int.from_bytes(header[field], "little") for field in (_NAME, _EXTRA))
    return entry.header_offset + _HEADER + following
