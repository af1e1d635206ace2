"""Publish an artifact: upload its towers one by one, check each after its upload, then write the manifest.

A reader may rely on this: where there is a manifest, every file it names is there, whole, and will not
change. Without a manifest there is no artifact, whatever files may lie about.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from exporter.artifact.put_once import put_once
from exporter.artifact.read import check_path
from exporter.artifact.upload_checks import (
    check_entry_files,
    check_stored_file,
    require_all_named,
    require_manifest_stored,
    require_uploads_remain,
)
from exporter.errors import AlreadyPublished, ExportError, SourceNotFound, StorageError
from exporter.manifest import MANIFEST_NAME, FileRef, Manifest, TowerEntry
from exporter.storage.open import Opener, open_store, split_uri
from exporter.storage.store import ArtifactStore, Permission, StoredFile

log = logging.getLogger(__name__)

OnProgress = Callable[[int, int], object]  # bytes uploaded so far, bytes to upload


def upload_tower(
    entry: TowerEntry,
    files: Mapping[str, Path],
    artifact_uri: str,
    *,
    replace_unfinished: bool,
    on_progress: OnProgress = lambda done, total: None,
    may_upload: Permission = lambda: None,
    opened: Opener = open_store,
) -> tuple[StoredFile, ...]:
    """Upload a tower's files to their paths in the artifact; only the manifest makes them part of it.

    `may_upload` is called before anything is removed, before each file, and after each part of a file; if it
    raises, the files uploaded so far are removed. `opened` opens the artifact's store, here and below.

    Returns:
        The uploaded files as the store holds them, for `publish_manifest`.

    Raises:
        AlreadyPublished: there is a manifest already, or files whose owner may still be at work.
        StorageError: a file was not stored, or not as it was sent.
        InvalidArtifact: the entry and the files disagree; nothing was uploaded.
    """
    return upload_tower_to_store(
        *_open_folder(artifact_uri, opened),
        entry,
        files,
        replace_unfinished=replace_unfinished,
        on_progress=on_progress,
        may_upload=may_upload,
    )


def upload_tower_to_store(
    store: ArtifactStore,
    folder: str,
    entry: TowerEntry,
    files: Mapping[str, Path],
    *,
    replace_unfinished: bool,
    on_progress: OnProgress = lambda done, total: None,
    may_upload: Permission = lambda: None,
) -> tuple[StoredFile, ...]:
    """Upload a tower as `upload_tower` does, into a folder of an open store.

    A failed attempt removes its uploads. One that was killed cannot, and its files would block the next
    attempt's, as keys are written once. `replace_unfinished` says that the caller knows such files to be
    abandoned: it holds the job's lease, no other attempt does, and so it removes them, but only while there
    is no manifest. They are never reused: if a straggler failed later, it would remove a reused file under
    the new manifest. If a straggler still writes, one of the two finds a key of the other and gives up;
    neither overwrites anything.
    """
    refs = check_entry_files(entry, files)
    may_upload()  # listing may take long, and an attempt that lost the job must not remove what it finds
    _claim_tower_folder(store, folder, str(entry.name), may_upload, replace_unfinished=replace_unfinished)
    uploaded: list[StoredFile] = []
    try:
        _upload_files(store, folder, refs, files, uploaded, on_progress, may_upload)
        for ref in refs:
            check_stored_file(store, f"{folder}/{ref.path}", ref)
    except BaseException:
        _remove_files(store, folder, uploaded)
        raise
    return tuple(replace(file, sha256=ref.sha256) for file, ref in zip(uploaded, refs, strict=True))


def upload_file(
    ref: FileRef,
    local: Path,
    artifact_uri: str,
    *,
    replace_unfinished: bool,
    on_progress: OnProgress = lambda done, total: None,
    may_upload: Permission = lambda: None,
    opened: Opener = open_store,
) -> StoredFile:
    """Upload one file of an artifact to which other processes upload theirs.

    It returns and raises what `upload_tower` does. Of a dead attempt's files it replaces only this one;
    `publish_manifest` removes the others.
    """
    store, folder = _open_folder(artifact_uri, opened)
    key = f"{folder}/{check_path(ref.path)}"
    _require_unpublished(store, folder)
    if replace_unfinished:
        store.delete(key)
    uploaded: list[StoredFile] = []
    try:
        _upload_files(store, folder, [ref], {ref.path: local}, uploaded, on_progress, may_upload)
        check_stored_file(store, key, ref)
    except BaseException:
        _remove_files(store, folder, uploaded)
        raise
    return replace(uploaded[0], sha256=ref.sha256)


def publish_manifest(
    manifest: Manifest,
    uploaded: Sequence[StoredFile],
    artifact_uri: str,
    *,
    replace_unfinished: bool,
    before_manifest: Permission = lambda: None,
    opened: Opener = open_store,
) -> str:
    """Write the manifest that names the uploaded files, which makes them an artifact.

    `before_manifest` may wait for the permission to do so; if it raises, the uploaded files are removed. It
    returns for how long the permission lasts, and no request to write the manifest takes longer.

    Returns:
        The manifest's URI.

    Raises:
        AlreadyPublished: there is a manifest already, or files that this attempt did not upload.
        ManifestWrong: the manifest gives another size or digest of a file than the store.
        StorageError: an uploaded file is gone or was changed; the uploaded files have been removed.
    """
    return publish_manifest_to_store(
        *_open_folder(artifact_uri, opened),
        manifest,
        uploaded,
        replace_unfinished=replace_unfinished,
        before_manifest=before_manifest,
    )


def publish_manifest_to_store(
    store: ArtifactStore,
    folder: str,
    manifest: Manifest,
    uploaded: Sequence[StoredFile],
    *,
    replace_unfinished: bool,
    before_manifest: Permission = lambda: None,
) -> str:
    """Publish as `publish_manifest` does, in a folder of an open store."""
    manifest_key = f"{folder}/{MANIFEST_NAME}"
    try:
        require_all_named(manifest, folder, uploaded)
        before_manifest()
        _require_only_uploads(store, folder, uploaded, before_manifest, replace_unfinished=replace_unfinished)
        put_once(store, manifest_key, _manifest_text(manifest), before_manifest)
        require_uploads_remain(store, folder, manifest_key, uploaded)
        require_manifest_stored(store, manifest_key, _manifest_text(manifest))
    except BaseException:
        _remove_files(store, folder, uploaded)
        raise
    return store.uri_of(manifest_key)


def manifest_digest(manifest: Manifest) -> str:
    """Return the sha256 of the bytes that `publish_manifest` writes for this manifest."""
    return hashlib.sha256(_manifest_text(manifest)).hexdigest()


def remove_uploads(uploaded: Sequence[StoredFile], artifact_uri: str, *, opened: Opener = open_store) -> None:
    """Remove the files uploaded for an artifact that will not be published; log what cannot be removed."""
    try:
        store, folder = _open_folder(artifact_uri, opened)
    except ExportError:  # a link lies there by now; the failure that led here is reported instead
        log.warning("unfinished_artifact_left", exc_info=True, extra={"uri": artifact_uri})
        return
    _remove_files(store, folder, uploaded)


def remove_abandoned_files(
    paths: Sequence[str], artifact_uri: str, still_ours: Permission, *, opened: Opener = open_store
) -> None:
    """Remove these files, which a dead process may have uploaded before it could report them.

    Raises:
        AlreadyPublished: there is a manifest, and the files may be part of it.
        StorageError: some of the files could not be removed.
    """
    store, folder = _open_folder(artifact_uri, opened)
    still_ours()
    _require_unpublished(store, folder)
    for path in paths:
        store.delete(f"{folder}/{check_path(path)}", still_ours)


def remove_unfinished_artifact(
    artifact_uri: str,
    still_ours: Permission = lambda: None,
    on_removed: Callable[[], None] = lambda: None,
    *,
    opened: Opener = open_store,
) -> None:
    """Remove all files and unfinished uploads in the folder of an artifact, unless it has a manifest.

    The caller must know that nobody works there or will: `still_ours`, called before each step, must raise
    where somebody may. `on_removed` is called after every file.

    Raises:
        StorageError: some of the files could not be removed.
    """
    store, folder = _open_folder(artifact_uri, opened)
    if store.exists(f"{folder}/{MANIFEST_NAME}"):
        return
    for file in store.list(folder):
        store.delete(file.key, still_ours)
        on_removed()
    store.delete_prefix(folder, still_ours)


def _open_folder(artifact_uri: str, opened: Opener) -> tuple[ArtifactStore, str]:
    output_uri, folder = split_uri(artifact_uri)
    return opened(output_uri), folder


def _claim_tower_folder(
    store: ArtifactStore, folder: str, tower: str, may_upload: Permission, *, replace_unfinished: bool
) -> None:
    """Clear a tower's folder of a dead attempt's files, or refuse it if they may not be replaced."""
    _require_unpublished(store, folder)
    if replace_unfinished:
        store.delete_prefix(f"{folder}/{tower}", may_upload)
    elif left := store.list(f"{folder}/{tower}"):
        raise _folder_taken(store, folder, left)


def _require_unpublished(store: ArtifactStore, folder: str) -> None:
    if store.exists(f"{folder}/{MANIFEST_NAME}"):
        uri = store.uri_of(folder)
        raise AlreadyPublished(f"{uri} is published; it is never overwritten", where=uri)


def _folder_taken(store: ArtifactStore, folder: str, left: Sequence[StoredFile]) -> AlreadyPublished:
    uri = store.uri_of(folder)
    return AlreadyPublished(
        f"{uri} holds {len(left)} files of an attempt that did not finish, the first {left[0].key}",
        hint="publish under a new job id, or remove them once that attempt is known to be dead",
        where=uri,
    )


def _require_only_uploads(
    store: ArtifactStore,
    folder: str,
    uploaded: Sequence[StoredFile],
    permission: Permission,
    *,
    replace_unfinished: bool,
) -> None:
    """Check that the folder holds the uploaded files and nothing else; remove a dead attempt's files."""
    _require_unpublished(store, folder)
    versions = {file.key: (file.size, file.version) for file in uploaded}
    found = {file.key: file for file in store.list(folder)}
    for key, version in versions.items():
        if key not in found or (found[key].size, found[key].version) != version:
            uri = store.uri_of(key)
            raise StorageError(f"{uri} is not the file that was uploaded there", hint="try again", where=uri)
    if not (strays := [file for key, file in found.items() if key not in versions]):
        return
    if not replace_unfinished:
        raise _folder_taken(store, folder, strays)
    for stray in strays:
        store.delete(stray.key, permission)


def _upload_files(
    store: ArtifactStore,
    folder: str,
    refs: list[FileRef],
    files: Mapping[str, Path],
    uploaded: list[StoredFile],
    on_progress: OnProgress,
    may_upload: Permission,
) -> None:
    """Upload every file; append to `uploaded` the files that are this attempt's to remove."""
    total, count, end = sum(ref.size for ref in refs), 0, 0

    def report(more: int) -> None:
        nonlocal count
        count += more
        on_progress(count, total)
        if count < end:  # a file that is complete must be recorded first
            may_upload()

    for ref in refs:
        end += ref.size
        may_upload()
        key = f"{folder}/{ref.path}"
        store.put(files[ref.path], key, report)
        uploaded.append(store.stat(key))


def _remove_files(store: ArtifactStore, folder: str, uploaded: Sequence[StoredFile]) -> None:
    """Remove this attempt's uploads, unless there is a manifest: then they are part of an artifact.

    A file that another attempt has written under the same key stays, even if its bytes are equal.
    """
    try:
        if not store.exists(f"{folder}/{MANIFEST_NAME}"):
            for file in uploaded:
                if _is_unchanged(store, file):
                    store.delete(file.key)
    except ExportError:  # the failure that led here is reported instead
        log.warning("unfinished_artifact_left", exc_info=True, extra={"uri": store.uri_of(folder)})


def _is_unchanged(store: ArtifactStore, file: StoredFile) -> bool:
    """Return whether the stored file is still the one that this attempt wrote."""
    try:
        found = store.stat(file.key)
    except SourceNotFound:
        return False
    return (found.version, found.token) == (file.version, file.token)


def _manifest_text(manifest: Manifest) -> bytes:
    return (manifest.model_dump_json(indent=2) + "\n").encode()
