"""Checks around an upload: the files before it, what the store holds after it, and the manifest over both."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter.artifact.errors import ManifestWrong
from exporter.artifact.read import check_path, file_ref
from exporter.errors import InvalidArtifact, StorageError
from exporter.manifest import FileRef, Manifest, TowerEntry
from exporter.storage.store import ArtifactStore, StoredFile


def check_entry_files(entry: TowerEntry, files: Mapping[str, Path]) -> list[FileRef]:
    """Return the files the entry names; raise unless they are the given files as they are on disk."""
    refs = list(entry.all_files)
    paths = [check_path(ref.path) for ref in refs]
    if len(set(paths)) != len(paths) or not all(path.startswith(f"{entry.name}/") for path in paths):
        raise InvalidArtifact(
            f"the entry of {entry.name} names a file twice, or another tower's: {', '.join(sorted(paths))}"
        )
    if odd := set(paths) ^ set(files):
        raise InvalidArtifact(f"the entry and the files to publish disagree on {', '.join(sorted(odd))}")
    for ref in refs:
        if file_ref(ref.path, files[ref.path]) != ref:
            raise InvalidArtifact(
                f"{files[ref.path]} is not the file that the entry describes", where=ref.path
            )
    return refs


def check_stored_file(store: ArtifactStore, key: str, ref: FileRef) -> None:
    """Raise StorageError unless the store returns the bytes that were sent."""
    if store.size(key) != ref.size or store.sha256(key) != ref.sha256:
        uri = store.uri_of(key)
        raise StorageError(
            f"{uri} was not stored as it was sent",
            hint="try again; if it happens again, the store damages files",
            where=uri,
        )


def require_all_named(manifest: Manifest, folder: str, uploaded: Sequence[StoredFile]) -> None:
    """Check that the manifest names the uploaded files, with the sizes and digests that the store has.

    Raises:
        InvalidArtifact: it names others.
        ManifestWrong: naming the file whose size or digest it has wrong.
    """
    named = {f"{folder}/{ref.path}": ref for tower in manifest.towers for ref in tower.all_files}
    if odd := named.keys() ^ {file.key for file in uploaded}:
        raise InvalidArtifact(f"the manifest and the uploaded files disagree on {', '.join(sorted(odd))}")
    for file in uploaded:
        ref = named[file.key]
        if file.size != ref.size or file.sha256 not in {"", ref.sha256}:
            described, stored = (f"{each.size:,} bytes, sha256 {each.sha256[:12]}…" for each in (ref, file))
            raise ManifestWrong(
                f"the manifest describes {ref.path} as {described}, and the store has {stored}",
                where=ref.path,
            )


def require_uploads_remain(
    store: ArtifactStore, folder: str, manifest_key: str, uploaded: Sequence[StoredFile]
) -> None:
    """Delete the manifest and raise if the folder was cleared while a slow request wrote the manifest."""
    left = {file.key for file in store.list(folder)}
    if lost := [file.key for file in uploaded if file.key not in left]:
        store.delete(manifest_key)
        uri = store.uri_of(lost[0])
        raise StorageError(f"{uri} was removed while its manifest was written", hint="try again", where=uri)


def require_manifest_stored(store: ArtifactStore, manifest_key: str, text: bytes) -> None:
    """Delete the manifest and raise if the store returns other bytes for it than it was given."""
    if store.read(manifest_key) != text:
        store.delete(manifest_key)
        uri = store.uri_of(manifest_key)
        raise StorageError(
            f"{uri} was not stored as it was sent",
            hint="try again; if it happens again, the store damages files",
            where=uri,
        )
