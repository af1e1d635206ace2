"""Load a package so that it can be called: as servers do, or, if it is large, with its weights mapped."""

import hashlib
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from exporter.aoti.assemble import BLOB_SUFFIX, CODE_FOLDER
from exporter.aoti.constants import Constant, read_constants_table
from exporter.aoti.torch_loader import Package, UnpackedPackage
from exporter.checkpoint.mapped_tensor import map_bytes
from exporter.checkpoint.stored_zip import data_start
from exporter.errors import CompileFailed, InvalidArtifact

# torch's loader copies the whole blob into memory; servers load packages this way, and packages of usual size
# are verified this way. A larger blob is mapped from the file instead.
_COPIED_BYTES = 64 << 20

# An archive may unpack to this many times its own size, or to _SMALL bytes if that is more.
_MOST_UNFOLDED = 200
_SMALL = 64 << 20


def check_archive(path: Path) -> None:
    """Raise InvalidArtifact if unpacking the archive would write outside its folder or fill the disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise InvalidArtifact(f"{path} is not a package: {error}", where=str(path)) from error
    for entry in entries:
        parts = entry.filename.replace("\\", "/").split("/")
        if ".." in parts or not parts[0] or "\\" in entry.filename or stat.S_ISLNK(entry.external_attr >> 16):
            raise InvalidArtifact(
                f"{path}: its entry {entry.filename!r} leads out of the package", where=str(path)
            )
    unfolded = sum(entry.file_size for entry in entries)
    if unfolded > max(_SMALL, _MOST_UNFOLDED * path.stat().st_size):
        raise InvalidArtifact(f"{path} would unpack to {unfolded:,} bytes", where=str(path))


def load_package(
    path: Path,
    device: torch.device,
    *,
    copied_bytes: int = _COPIED_BYTES,
    single_threaded: bool = False,
    runners: int = 1,
) -> Package:
    """Load a package, which is native code: its digest must have been checked before.

    On a CPU, a weights blob of more than `copied_bytes` is mapped. See `Package` for the last two.

    Raises:
        InvalidArtifact: the file is not a package.
    """
    check_archive(path)
    if device.type == "cuda":
        torch.cuda.init()  # a package allocates memory without initialising CUDA
    try:
        with zipfile.ZipFile(path) as archive:
            blobs = [entry for entry in archive.infolist() if entry.filename.endswith(BLOB_SUFFIX)]
            is_copied = len(blobs) != 1 or blobs[0].file_size <= copied_bytes
            if device.type != "cpu" or is_copied or single_threaded:
                index = -1 if device.index is None else device.index
                return Package(path, index, runners=runners, single_threaded=single_threaded)
            return _load_in_place(path, archive, blobs[0], runners=runners)
    except zipfile.BadZipFile as error:
        raise InvalidArtifact(f"{path} is not a package: {error}", where=str(path)) from error


@dataclass(frozen=True, kw_only=True)
class PackageContents:
    """The code of a package, as digests of each kind of file, and its weights, mapped from the file."""

    code: Mapping[str, str]  # by "wrapper.so", "kernel.cpp", ...: names in the archive begin with a digest
    weights: Mapping[str, Tensor]  # by their names in the traced module


def read_contents(path: Path) -> PackageContents:
    """Read what is in a package without loading it, which works on any machine.

    Raises:
        InvalidArtifact: the file is not a package of Slipway's.
    """
    check_archive(path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if f"/{CODE_FOLDER}/" in entry.filename]
            blobs = [entry for entry in entries if entry.filename.endswith(BLOB_SUFFIX)]
            code: dict[str, str] = {}
            for entry in sorted(entries, key=lambda each: each.CRC):  # a GPU's code has many of one kind
                if entry not in blobs:
                    code[_kind(entry)] = code.get(_kind(entry), "") + _digest(archive, entry)
            source = next((entry for entry in entries if entry.filename.endswith("wrapper.cpp")), None)
            if source is None:
                raise InvalidArtifact(f"{path} has no code", where=str(path))
            table = read_constants_table(archive.read(source).decode())
    except (zipfile.BadZipFile, UnicodeDecodeError, CompileFailed) as error:
        raise InvalidArtifact(f"{path} is not a package: {error}", where=str(path)) from error
    return PackageContents(code=code, weights=_map_blob(path, blobs[0], table) if blobs else {})


def _kind(entry: zipfile.ZipInfo) -> str:
    """Return a file's name in the package without the digest that the compiler puts in front."""
    _, _, below = entry.filename.partition(f"/{CODE_FOLDER}/")
    folder, slash, name = below.rpartition("/")
    return f"{folder}{slash}{name.partition('.')[2] or name}"


def _digest(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> str:
    with archive.open(entry) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it reads no more


def _load_in_place(path: Path, archive: zipfile.ZipFile, blob: zipfile.ZipInfo, *, runners: int) -> Package:
    folder = Path(
        tempfile.mkdtemp()
    )  # not removed here: the library stays open; TMPDIR goes with the attempt
    for entry in archive.infolist():
        _, _, below = entry.filename.partition("/")
        if entry is not blob and below.startswith(f"{CODE_FOLDER}/") and ".." not in below:
            target = folder / below
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(entry))
    source = next((folder / CODE_FOLDER).glob("*wrapper.cpp"), None)
    if source is None:
        raise InvalidArtifact(f"{path} has weights but no code", where=str(path))
    weights = _map_blob(path, blob, read_constants_table(source.read_text()))
    return UnpackedPackage(folder, weights, runners=runners)


def _map_blob(path: Path, blob: zipfile.ZipInfo, table: tuple[Constant, ...]) -> dict[str, Tensor]:
    """Map each constant's tensor from the place in the file that the package's own table gives it."""
    if sum(constant.size for constant in table) != blob.file_size or blob.compress_type != zipfile.ZIP_STORED:
        raise InvalidArtifact(f"{path}: the weights do not match the table in its code", where=str(path))
    weights: dict[str, Tensor] = {}
    with path.open("rb") as file:
        at = data_start(blob, file)
        for constant in table:
            values = map_bytes(file.fileno(), at, constant.size)[: constant.nbytes]
            weights[constant.fqn] = values.view(constant.dtype).as_strided(
                constant.shape, constant.stride, constant.offset
            )
            at += constant.size
    return weights
