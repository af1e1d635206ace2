"""Prepare an artifact for servers: unpack it to a folder whose weights can be mapped and checked in parts.

The folder is written under another name beside its own and renamed once it is complete.
"""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slipway.loading.errors import ArtifactInvalid, LoaderError, PrepareFailed
from slipway.loading.layout.archive import open_archive
from slipway.loading.layout.digests import digest_file, read_leaves, require_file, root_of
from slipway.loading.layout.index import (
    INDEX_NAME,
    PreparedIndex,
    PreparedPackage,
    PreparedShard,
    PreparedTables,
    PreparedTower,
    read_index,
)
from slipway.loading.layout.manifest import (
    MANIFEST_NAME,
    FileRef,
    Manifest,
    Tower,
    parse_manifest,
    read_manifest_bytes,
)
from slipway.loading.layout.signature import check_signature
from slipway.loading.layout.weights_file import write_weights
from slipway.signatures import SIGNATURE_NAME

_READ_ONLY = 0o444


def prepare(
    artifact: Path | str, into: Path | str, *, key: Path | None = None, towers: Collection[str] = ()
) -> Path:
    """Unpack the artifact, a local folder, to the folder `into`, which must not exist; return it.

    Every file's digest is checked, and the manifest's signature if a public `key` is given. Without `towers`
    all of them are prepared. If a preparation of the same manifest is there already, it is kept. Several
    processes may prepare at once; one that is interrupted leaves nothing.

    Raises:
        ArtifactInvalid: the artifact, or one of its files, is not as the manifest says.
        SignatureRefused: `key` has not signed the manifest.
        PrepareFailed: the folder exists and is something else, or cannot be written.
    """
    source, target = Path(artifact), Path(into)
    data = read_manifest_bytes(source)
    if key is not None:
        check_signature(data, source, key)
    manifest = parse_manifest(data, str(source / MANIFEST_NAME))
    chosen = tuple(manifest.tower(name, str(source)) for name in towers) or manifest.towers
    if _is_preparation(target, data, chosen):
        return target
    with _new_folder(target) as folder:
        _write(source, folder, data, manifest, chosen)
        for path in folder.rglob("*"):
            if path.is_file():
                _sync(path)
                path.chmod(_READ_ONLY)
        _publish(folder, target, data, chosen)
    return target


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside the target, which is removed at the end if it is still there."""
    folder: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.partial-"))
        yield folder
    except OSError as error:
        full = " (the disk is full)" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise PrepareFailed(
            f"{target} could not be written: {error.strerror}{full}", where=str(target)
        ) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _publish(folder: Path, target: Path, manifest: bytes, towers: Collection[Tower]) -> None:
    folder.chmod(0o755)
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        if not _is_preparation(target, manifest, towers):  # another process was first
            raise
    _sync(target.parent)


def _is_preparation(target: Path, manifest: bytes, towers: Collection[Tower]) -> bool:
    """Return whether the target is a preparation of this manifest; raise PrepareFailed if it is in use.

    An absent or empty folder is no preparation, and can become one.
    """
    try:
        if not target.exists() or not any(target.iterdir()):
            return False
        if (target / INDEX_NAME).is_file() and (target / MANIFEST_NAME).read_bytes() == manifest:
            index = read_index(target, manifest)
            return all(index.tower(tower.name, target) for tower in towers)
    except (OSError, LoaderError) as error:
        raise PrepareFailed(f"{target} is there, and is not usable: {error}", where=str(target)) from error
    raise PrepareFailed(
        f"{target} is there, and is not a preparation of this artifact",
        hint="prepare every artifact to a folder of its own",
        where=str(target),
    )


def _write(source: Path, folder: Path, data: bytes, manifest: Manifest, towers: Iterable[Tower]) -> None:
    (folder / MANIFEST_NAME).write_bytes(data)
    if (source / SIGNATURE_NAME).is_file():
        shutil.copyfile(source / SIGNATURE_NAME, folder / SIGNATURE_NAME)
    index = PreparedIndex(
        job_id=manifest.job_id,
        manifest_sha256=hashlib.sha256(data).hexdigest(),
        towers=tuple(_write_tower(source, folder, tower) for tower in towers),
    )
    index.write(folder)


def _write_tower(source: Path, folder: Path, tower: Tower) -> PreparedTower:
    files = (*tower.files, *((tower.samples,) if tower.samples else ()))
    for ref in files:
        _copy(source, folder, ref)
    tables = None
    if tower.tables is not None:
        _copy(source, folder, tower.tables.index)
        shards = tuple(_write_shard(source, folder, ref) for ref in tower.tables.shards)
        tables = PreparedTables(index=tower.tables.index, shards=shards)
    return PreparedTower(
        name=tower.name,
        files=files,
        packages=tuple(
            _write_package(source, folder, ref, f"{tower.name}/packages/{number}")
            for number, ref in enumerate(tower.packages)
        ),
        tables=tables,
    )


def _copy(source: Path, folder: Path, ref: FileRef) -> None:
    require_file(source / ref.path, ref.size, ref.sha256)
    target = folder / ref.path
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / ref.path, target)


def _write_shard(source: Path, folder: Path, ref: FileRef) -> PreparedShard:
    _copy(source, folder, ref)
    leaves = f"{ref.path}.leaves"
    digests = read_leaves(folder / ref.path)
    (folder / leaves).write_bytes(digests)
    return PreparedShard(path=ref.path, size=ref.size, leaves=leaves, root=root_of(ref.size, digests))


def _write_package(source: Path, folder: Path, ref: FileRef, below: str) -> PreparedPackage:
    require_file(source / ref.path, ref.size, ref.sha256)
    archive = open_archive(source / ref.path)
    code = refs_of(archive.unpack_code(folder / below), folder)
    return PreparedPackage(
        package=ref.path,
        folder=below,
        library=library_of(code, ref.path),
        code=code,
        code_sha256=digest_code(code, f"{below}/"),
        weights=write_weights(archive.path, archive.blob, folder, below) if archive.blob else None,
    )


def refs_of(files: Iterable[Path], folder: Path) -> tuple[FileRef, ...]:
    """Return the paths below `folder`, sizes and digests of files."""
    return tuple(
        FileRef(path=str(path.relative_to(folder)), size=path.stat().st_size, sha256=digest_file(path))
        for path in sorted(files)
    )


def library_of(code: Iterable[FileRef], where: str) -> str:
    """Return the path of the library; raise ArtifactInvalid if the code has not exactly one."""
    libraries = [ref.path for ref in code if ref.path.endswith(".so")]
    if len(libraries) != 1:
        raise ArtifactInvalid(f"{where} has {len(libraries)} libraries instead of one", where=where)
    return libraries[0]


def digest_code(code: Iterable[FileRef], folder: str) -> str:
    """Return a digest over names and contents of a package's code, in any folder."""
    lines = sorted(f"{ref.path.removeprefix(folder)} {ref.sha256}" for ref in code)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
