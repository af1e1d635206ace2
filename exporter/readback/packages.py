"""Read a package back from the very file that will be sent, and hold all of it against what it was made of.

The archive's entries are held against the compiled files, by name and byte by byte; then every byte of every
weight against the checkpoint. A fault in filling the module is found like one in writing the file.
"""

import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from exporter.aoti.assemble import ARCHIVE_MARKS, BLOB_SUFFIX, CODE_FOLDER, WrittenFile
from exporter.aoti.code import CompiledCode
from exporter.aoti.constants import Constant
from exporter.checkpoint.mapped_tensor import map_bytes
from exporter.checkpoint.stored_zip import data_start
from exporter.manifest import ReadBack
from exporter.readback.compare import Found, Place, as_rows, compare_boxes
from exporter.readback.errors import ArchiveDiffers, WeightsDiffer
from exporter.readback.expected import Expected, Held
from exporter.readback.tower_weights import TowerWeights, expect_own, find_altered_constant
from exporter.stages import Progress, no_progress


@dataclass(frozen=True, kw_only=True, eq=False)
class WrittenPackage:
    """A package on disk, and what it was made of."""

    title: str  # of the tower
    file: WrittenFile
    code: CompiledCode
    module: nn.Module  # of the part, whose names the weights have
    weights: Mapping[str, Tensor]  # that were written
    constants: Mapping[str, Tensor] | None = None  # of the traced program; None: nothing was traced
    edited: bool = False  # a pass edited the program


def read_back(
    packages: Sequence[WrittenPackage], origin: TowerWeights | None, progress: Progress = no_progress
) -> ReadBack:
    """Compare every byte of the packages; return what was compared.

    A constant that no checkpoint has, because it is part of the model's code, is held against the traced
    program or, if nothing was traced, against the compiled code, which the code cache keeps with a digest.
    Constants of the compiler's own making are held against the compiled code alone.

    Args:
        packages: those of one tower.
        origin: the checkpoint; without one, as for a module that was made by hand, weights are held
            against the module's.
        progress: receives the fraction that has been compared.

    Raises:
        ArchiveDiffers: names the entry of the archive that is missing, new, there twice or changed.
        WeightsDiffer: names the tensor, the row, the column, and both values.
    """
    total, done = sum(package.file.size for package in packages), 0
    report = ReadBack()
    for package in packages:
        place = Place(title=package.title, file=package.file.path.name)
        entries, blob = _read_archive(package)
        found, padding = _map_constants(package.file.path, package.code.table, blob)
        _require_zeros(padding, place)
        from_checkpoint = 0
        for expected in _expect_all(package, origin):
            own = {name: found[name] for name in expected.names if name in found}
            compare_boxes(own, expected.boxes(0, _rows(own)), place, expected.reference)
            from_checkpoint += len(own) if expected.from_checkpoint else 0
            done += _bytes(own)
            progress(done / total, f"weights of {place.file} read back")
        report = ReadBack(
            entries=report.entries + entries,
            tensors=report.tensors + len(found),
            from_checkpoint=report.from_checkpoint + from_checkpoint,
            bytes=report.bytes + _bytes(found),
        )
    return report


def _rows(found: Mapping[str, Found]) -> int:
    return max((each.raw.shape[0] for each in found.values()), default=0)


def _bytes(found: Mapping[str, Found]) -> int:
    return sum(each.raw.numel() for each in found.values())


def _read_archive(package: WrittenPackage) -> tuple[int, zipfile.ZipInfo | None]:
    """Compare all entries but the weights; return their number, and the entry of the weights."""
    path, root = package.file.path, package.file.path.stem
    wanted: dict[str, bytes | None] = {f"{root}/{name}": data for name, data in ARCHIVE_MARKS.items()}
    for name, data in package.code.files.items():
        wanted[f"{root}/{CODE_FOLDER}/{name}"] = None if name.endswith(BLOB_SUFFIX) else data
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            _require_names(archive.namelist(), wanted, package)
            for name, content in wanted.items():
                is_stored = entries[name].compress_type == zipfile.ZIP_STORED
                if not is_stored or (content is not None and archive.read(name) != content):
                    raise ArchiveDiffers(
                        f"{package.title}: {path.name}: {name} is not what was compiled", where=name
                    )
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise ArchiveDiffers(f"{package.title}: {path.name}: {error}", where=path.name) from error
    return len(wanted), next((entries[name] for name, data in wanted.items() if data is None), None)


def _require_names(found: Sequence[str], wanted: Collection[str], package: WrittenPackage) -> None:
    faults = {
        "is missing": sorted(set(wanted) - set(found)),
        "was not compiled": sorted(set(found) - set(wanted)),
        "is there twice": sorted({name for name in found if found.count(name) > 1}),
    }
    for fault, names in faults.items():
        if names:
            raise ArchiveDiffers(
                f"{package.title}: {package.file.path.name}: {names[0]} {fault}", where=names[0]
            )


def _map_constants(
    path: Path, table: Sequence[Constant], blob: zipfile.ZipInfo | None
) -> tuple[dict[str, Found], list[tuple[str, Tensor]]]:
    """Return each constant's bytes where they lie in the file, and the padding behind each."""
    size = sum(constant.size for constant in table)
    if size != (blob.file_size if blob else 0):
        raise ArchiveDiffers(
            f"{path.name}: its weights take {blob.file_size if blob else 0} bytes, and the compiled code "
            f"reads {size}",
            where=path.name,
        )
    if blob is None:
        return {}, []
    with path.open("rb") as file:
        values = map_bytes(file.fileno(), data_start(blob, file), size)
    found: dict[str, Found] = {}
    padding, at = [], 0
    for constant in table:
        raw = values[at : at + constant.nbytes]
        padding.append((constant.fqn, values[at + constant.nbytes : at + constant.size]))
        item, shape = constant.dtype.itemsize, constant.shape
        matrix = raw.reshape(*shape[:-1], shape[-1] * item) if shape else raw
        found[constant.fqn] = Found(raw=as_rows(matrix, item), dtype=constant.dtype, is_flat=len(shape) < 2)
        at += constant.size
    return found, padding


def _require_zeros(padding: Sequence[tuple[str, Tensor]], place: Place) -> None:
    for name, values in padding:
        if values.any():
            raise WeightsDiffer(
                f"{place.title}: {place.file}: {name}: the bytes that fill up its place are not zeros",
                where=name,
            )


def _expect_all(package: WrittenPackage, origin: TowerWeights | None) -> Iterator[Expected]:
    """Yield what each constant must be; several that are made of the same rows come together."""
    prefix = origin.prefix_in(package.module) if origin else ""
    values, seen = package.code.values, set[str]()
    if package.constants is not None and (name := find_altered_constant(values, package.constants)):
        raise WeightsDiffer(
            f"{package.title}: the constant {name} of the compiled code is not the traced program's",
            where=name,
        )
    for constant in package.code.table:
        if constant.fqn in seen:
            continue
        if constant.fqn in values:
            expected: Expected = Held(constant.fqn, values[constant.fqn], "the compiled code")
        elif origin is not None and constant.fqn.startswith(prefix):
            expected = origin.expect(constant, prefix, edited=package.edited)
        else:
            expected = expect_own(constant, package.weights, "the module")
        seen.update(expected.names)
        yield expected
