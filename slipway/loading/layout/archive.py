"""A package's file, an uncompressed zip archive: its code, and the place of its weights in the file."""

import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path

from slipway.loading.errors import ArtifactInvalid
from slipway.loading.layout.constants_table import ConstantRow, read_rows

CODE_FOLDER = "data/aotinductor/model"  # of an unpacked package, and below the root folder of an archive
BLOB_SUFFIX = "_weights.blob"
# Code may unpack to this many times the file's size, or to _SMALL bytes if that is more.
_MOST_UNFOLDED = 200
_SMALL = 64 << 20
_HEADER = 30  # bytes of an entry's local header, without its name and extra field
_NAME, _EXTRA = slice(26, 28), slice(28, 30)  # positions in the header of the lengths of name and extra field


@dataclass(frozen=True, kw_only=True)
class Blob:
    """The weights of a package: where they begin in its file, and the tensors one after the other."""

    start: int
    size: int
    rows: tuple[ConstantRow, ...]


@dataclass(frozen=True, kw_only=True)
class PackageArchive:
    """A package's file."""

    path: Path
    code: tuple[zipfile.ZipInfo, ...]  # entries of the code folder, but the weights
    blob: Blob | None  # None: the code reads no weights

    def unpack_code(self, folder: Path) -> tuple[Path, ...]:
        """Write the code below `folder` as torch's loader expects it, and return the files."""
        written = []
        with zipfile.ZipFile(self.path) as archive:
            for entry in self.code:
                target = folder / entry.filename.partition("/")[2]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))
                written.append(target)
        return tuple(written)


def open_archive(path: Path) -> PackageArchive:
    """Read a package's directory and table of constants.

    Raises:
        ArtifactInvalid: the file is no package of Slipway's, or unpacking it could do harm.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if _is_code(entry, path)]
            blobs = [entry for entry in entries if entry.filename.endswith(BLOB_SUFFIX)]
            code = tuple(entry for entry in entries if entry not in blobs)
            unfolded = sum(entry.file_size for entry in code)
            if unfolded > max(_SMALL, _MOST_UNFOLDED * path.stat().st_size):
                raise _invalid(path, f"it would unpack to {unfolded:,} bytes")
            sources = [entry for entry in code if entry.filename.endswith("wrapper.cpp")]
            if len(sources) != 1 or len(blobs) > 1:
                raise _invalid(path, f"it has {len(sources)} programs and {len(blobs)} blobs of weights")
            rows = read_rows(archive.read(sources[0]).decode())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise _invalid(path, str(error)) from error
    return PackageArchive(path=path, code=code, blob=_place(path, blobs[0], rows) if blobs else None)


def _is_code(entry: zipfile.ZipInfo, path: Path) -> bool:
    """Return whether an entry is a file of the code folder; raise ArtifactInvalid if it leads elsewhere."""
    root, _, below = entry.filename.partition("/")
    is_inside = root and ".." not in entry.filename.split("/") and "\\" not in entry.filename
    if not is_inside or stat.S_ISLNK(entry.external_attr >> 16):
        raise _invalid(path, f"its entry {entry.filename!r} leads out of it")
    return below.startswith(f"{CODE_FOLDER}/") and not entry.is_dir()


def _place(path: Path, entry: zipfile.ZipInfo, rows: tuple[ConstantRow, ...]) -> Blob:
    """Find the data of the weights, which the archive's directory does not say."""
    if sum(row.size for row in rows) != entry.file_size or entry.compress_type != zipfile.ZIP_STORED:
        raise _invalid(path, "its weights do not match the table in its code")
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(_HEADER)
    following = sum(int.from_bytes(header[field], "little") for field in (_NAME, _EXTRA))
    start = entry.header_offset + _HEADER + following
    if start + entry.file_size > path.stat().st_size:
        raise _invalid(path, "its weights are cut short")
    return Blob(start=start, size=entry.file_size, rows=rows)


def _invalid(path: Path, problem: str) -> ArtifactInvalid:
    return ArtifactInvalid(f"{path} is not a package: {problem}", where=str(path))
