"""Places of a tower's packages on disk: unpacked by `slipway prepare`, or in the artifact's own files."""

import shutil
import tempfile
import weakref
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path

from slipway.loading.errors import ArtifactInvalid
from slipway.loading.layout.archive import open_archive
from slipway.loading.layout.digests import Tree, open_tree, require_file
from slipway.loading.layout.index import PlacedTensor, PreparedPackage, PreparedTower
from slipway.loading.layout.manifest import FileRef, Tower
from slipway.loading.layout.prepare import digest_code, library_of, refs_of
from slipway.loading.layout.weights_file import tensors_in


class TemporaryFolder:
    """A folder below TMPDIR that is removed with this object, or when Python ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="slipway-code-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Tensors in a file, of whose `size` they are part; `tree` is None for a file checked as a whole."""

    path: Path
    size: int
    tensors: tuple[PlacedTensor, ...]
    tree: Tree | None


@dataclass(frozen=True, kw_only=True)
class Source:
    """One package: its unpacked code, which has been checked, and its weights."""

    folder: Path  # as torch's loader takes it
    library: Path
    code_sha256: str
    weights: Weights | None
    # A folder of unpacked code that is removed with this object.
    temporary: "TemporaryFolder | None" = field(default=None, compare=False, repr=False)


def find_prepared(folder: Path, tower: PreparedTower, loaded: Container[str] = ()) -> tuple[Source, ...]:
    """Return the packages of a prepared tower, in calling order.

    Code whose digest is among `loaded` is not read, because it will be taken from where it was loaded.

    Raises:
        ArtifactDamaged: a file is missing, cut short, or, if it is of code, not the prepared one.
    """
    return tuple(_find_prepared(folder, package, loaded) for package in tower.packages)


def _find_prepared(folder: Path, package: PreparedPackage, loaded: Container[str]) -> Source:
    if digest_code(package.code, f"{package.folder}/") != package.code_sha256:
        raise ArtifactInvalid(f"{folder}: the code's digests do not belong together", where=str(folder))
    if package.code_sha256 not in loaded:
        for ref in package.code:
            require_file(folder / ref.path, ref.size, ref.sha256)
    if package.library not in {ref.path for ref in package.code}:
        raise ArtifactInvalid(f"{folder}: {package.library} has no digest", where=str(folder))
    weights = None
    if (found := package.weights) is not None:
        tree = open_tree(folder / found.path, found.size, folder / found.leaves, found.root)
        weights = Weights(path=tree.path, size=tree.size, tensors=found.tensors, tree=tree)
    return Source(
        folder=folder / package.folder,
        library=folder / package.library,
        code_sha256=package.code_sha256,
        weights=weights,
    )


def unpack(artifact: Path, tower: Tower, *, checked: bool) -> tuple[Source, ...]:
    """Return the packages of a tower of an unprepared artifact, in calling order.

    Code is unpacked below TMPDIR; weights stay in the artifact's files, which are read as a whole if they are
    to be `checked`.

    Raises:
        ArtifactDamaged: a file is missing, or not the published one.
        ArtifactInvalid: a file is no package.
    """
    return tuple(_unpack(artifact / ref.path, ref, checked=checked) for ref in tower.packages)


def _unpack(path: Path, ref: FileRef, *, checked: bool) -> Source:
    require_file(path, ref.size, ref.sha256 if checked else None)
    archive = open_archive(path)
    temporary = TemporaryFolder()
    folder = temporary.path
    code = refs_of(archive.unpack_code(folder), folder)
    weights = None
    if archive.blob is not None:
        tensors = tuple(tensors_in(archive.blob, path))
        weights = Weights(path=path, size=ref.size, tensors=tensors, tree=None)
    return Source(
        folder=folder,
        library=folder / library_of(code, str(path)),
        code_sha256=digest_code(code, ""),
        weights=weights,
        temporary=temporary,
    )
