"""What is in a package beside the weights is exactly what was compiled."""

import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.aoti.assemble import BLOB_SUFFIX
from exporter.artifact.read import file_ref
from exporter.readback.errors import ArchiveDiffers, WeightsDiffer
from exporter.readback.packages import WrittenPackage, read_back
from tests.exporter.readback.packages import flipped
from tests.exporter.readback.test_packages import package_of

Entries = list[tuple[str, bytes]]


@pytest.fixture
def package(tmp_path: Path) -> WrittenPackage:
    return package_of({}, None, tmp_path)


def rewrite(path: Path, change: Callable[[Entries], Entries], *, compressed: bool = False) -> None:
    """Write an archive anew with other entries."""
    with zipfile.ZipFile(path) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in change(entries):
            archive.writestr(name, data)


def renamed(entries: Entries) -> Entries:
    return [(name.replace("wrapper.so", "other.so"), data) for name, data in entries]


CHANGES: dict[str, tuple[Callable[[Entries], Entries], str]] = {
    "more": (lambda entries: [*entries, ("model/extra", b"x")], "model/extra was not compiled"),
    "twice": (lambda entries: [*entries, entries[0]], "model/archive_format is there twice"),
    "fewer": (lambda entries: entries[1:], "model/archive_format is missing"),
    "renamed": (renamed, "model/data/aotinductor/model/a.wrapper.so is missing"),
    "mark": (
        lambda entries: [(entries[0][0], b"pt3"), *entries[1:]],
        "archive_format is not what was compiled",
    ),
    "code": (
        lambda entries: [(name, data + b" " if name.endswith(".cpp") else data) for name, data in entries],
        "wrapper.cpp is not what was compiled",
    ),
    "fewer weights": (
        lambda entries: [
            (name, data[:-64] if name.endswith(BLOB_SUFFIX) else data) for name, data in entries
        ],
        "its weights take 128 bytes, and the compiled code reads 192",
    ),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", CHANGES)
def test_an_archive_that_holds_something_else_is_refused(kind: str, package: WrittenPackage) -> None:
    change, message = CHANGES[kind]
    rewrite(package.file.path, change)
    with pytest.raises(ArchiveDiffers, match=message):
        read_back([package], None)


def test_compressed_entries_are_refused(package: WrittenPackage) -> None:
    rewrite(package.file.path, lambda entries: entries, compressed=True)
    with pytest.raises(ArchiveDiffers, match="is not what was compiled"):
        read_back([package], None)


def test_what_is_no_archive_is_refused(package: WrittenPackage) -> None:
    package.file.path.write_bytes(b"PK")
    with pytest.raises(ArchiveDiffers, match=r"model tower: model.pt2"):
        read_back([package], None)


def test_a_flipped_bit_anywhere_in_the_file_is_refused_here_or_by_its_digest(package: WrittenPackage) -> None:
    path, draw = package.file.path, random.Random(3)
    refused = 0
    for _ in range(400):
        with flipped(path, draw.randrange(package.file.size), draw.randrange(8)):
            try:
                read_back([package], None)
            except (ArchiveDiffers, WeightsDiffer):
                refused += 1
            else:  # in the directory of the archive: the upload compares the file's digest
                assert file_ref("model.pt2", path).sha256 != package.file.sha256
    assert refused > 300
