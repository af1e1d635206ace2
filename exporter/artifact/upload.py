"""Publish an artifact: its towers one by one, checked after they went up, then the manifest that names them.

What a reader may rely on: where there is a manifest, every file it names is there, whole, and will not
change. Without one there is no artifact, whatever files may lie about.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from exporter.artifact.read import check_path, file_ref
from exporter.errors import AlreadyPublished, ExportError, InvalidArtifact, SourceNotFound, StorageError
from exporter.manifest import MANIFEST_NAME, FileRef, Manifest, TowerEntry
from exporter.storage.open import open_store, split_uri
from exporter.storage.store import ArtifactStore, Permission, StoredFile

log = logging.getLogger(__name__)

OnProgress = Callable[[int, int], object]  # bytes sent so far, bytes to send

_MANIFEST_TRIES = 5  # each no longer than the right to it lasts
_MANIFEST_PAUSE_S = 0.5  # before the second; one more before each further one


def upload_tower(
    entry: TowerEntry,
    files: Mapping[str, Path],
    artifact_uri: str,
    *,
    replace_unfinished: bool,
    on_progress: OnProgress = lambda sent, total: None,
    may_upload: Permission = lambda: None,
) -> tuple[StoredFile, ...]:
    """Send a tower's files to their paths in the artifact; only its manifest makes them part of it.

    `may_upload` is asked before anything is removed, before each file, and after each part of one; if it
    raises, all is taken back.

    Returns:
        What the store holds of them now, for `publish_manifest`.

    Raises:
        AlreadyPublished: there is a manifest already, or files whose owner may still be at work.
        StorageError: a file did not arrive as it was sent, or not at all.
        InvalidArtifact: the entry and the files disagree; nothing was sent.
    """
    store, folder = _open_folder(artifact_uri)
    return upload_tower_to_store(
        store,
        folder,
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
    on_progress: OnProgress = lambda sent, total: None,
    may_upload: Permission = lambda: None,
) -> tuple[StoredFile, ...]:
    """As `upload_tower`, into a folder of a store.

    A failed attempt removes what it sent. One that was killed cannot, and its files would refuse the next
    attempt's, as keys are written once. `replace_unfinished` says that the caller knows such files to be
    dead: it holds the job's lease, no other attempt does, and so it removes them, but only while there is
    no manifest. They are never reused: a straggler that fails at last would remove a reused file under the
    new manifest. Should a straggler write after all, one of the two meets a key of the other and gives up;
    neither overwrites anything.
    """
    refs = _check_entry_files(entry, files)
    may_upload()  # before a look that may be long: what is found must not be removed by who has lost the job
    _claim_tower_folder(store, folder, str(entry.name), may_upload, replace_unfinished=replace_unfinished)
    sent: list[StoredFile] = []
    try:
        _upload_files(store, folder, refs, files, sent, on_progress, may_upload)
        for ref in refs:
            _check_stored_file(store, f"{folder}/{ref.path}", ref)
    except BaseException:
        _remove_files(store, folder, sent)
        raise
    return tuple(sent)


def upload_file(
    ref: FileRef,
    local: Path,
    artifact_uri: str,
    *,
    replace_unfinished: bool,
    on_progress: OnProgress = lambda sent, total: None,
    may_upload: Permission = lambda: None,
) -> StoredFile:
    """Upload one file of an artifact to which other processes upload theirs.

    It returns and raises what `upload_tower` does. Of a dead attempt's files it replaces only this one;
    `publish_manifest` removes the others.
    """
    store, folder = _open_folder(artifact_uri)
    key = f"{folder}/{check_path(ref.path)}"
    _require_unpublished(store, folder)
    if replace_unfinished:
        store.delete(key)
    sent: list[StoredFile] = []
    try:
        _upload_files(store, folder, [ref], {ref.path: local}, sent, on_progress, may_upload)
        _check_stored_file(store, key, ref)
    except BaseException:
        _remove_files(store, folder, sent)
        raise
    return sent[0]


def publish_manifest(
    manifest: Manifest,
    sent: Sequence[StoredFile],
    artifact_uri: str,
    *,
    replace_unfinished: bool,
    before_manifest: Permission = lambda: None,
) -> str:
    """Make an artifact of what was sent: write the manifest that names it.

    `before_manifest` may wait for the right to do so; if it raises, all is taken back. No request for it is
    waited for any longer than the right lasts.

    Returns:
        The manifest's URI.

    Raises:
        AlreadyPublished: there is a manifest already, or files that this attempt did not send.
        StorageError: what was sent is not there any more, or is not what it was; it has been removed.
    """
    store, folder = _open_folder(artifact_uri)
    return publish_manifest_to_store(
        store,
        folder,
        manifest,
        sent,
        replace_unfinished=replace_unfinished,
        before_manifest=before_manifest,
    )


def publish_manifest_to_store(
    store: ArtifactStore,
    folder: str,
    manifest: Manifest,
    sent: Sequence[StoredFile],
    *,
    replace_unfinished: bool,
    before_manifest: Permission = lambda: None,
) -> str:
    """As `publish_manifest`, in a folder of a store."""
    manifest_key = f"{folder}/{MANIFEST_NAME}"
    try:
        _require_all_named(manifest, folder, sent)
        before_manifest()
        _require_only_uploads(store, folder, sent, before_manifest, replace_unfinished=replace_unfinished)
        _put_manifest(store, manifest_key, _manifest_text(manifest), before_manifest)
        _require_uploads_remain(store, folder, manifest_key, sent)
    except BaseException:
        _remove_files(store, folder, sent)
        raise
    return store.uri_of(manifest_key)


def _put_manifest(store: ArtifactStore, key: str, text: bytes, permission: Permission) -> None:
    """Write it as long as one may; an answer that did not come in time may be that it was written."""
    for left in reversed(range(_MANIFEST_TRIES)):
        within = permission()  # to look at all of the artifact, or to try before, may have taken long
        try:
            store.put_bytes(text, key, within=within)
            return
        except AlreadyPublished:
            if left == _MANIFEST_TRIES - 1 or store.read(key) != text:
                raise
            return
        except StorageError as error:
            if not error.retryable or not left:
                raise
            log.warning("manifest_not_written", exc_info=True, extra={"key": key})
            time.sleep(_MANIFEST_PAUSE_S * (_MANIFEST_TRIES - left))


def manifest_digest(manifest: Manifest) -> str:
    """The sha256 of the bytes that `publish_manifest` writes of it."""
    return hashlib.sha256(_manifest_text(manifest)).hexdigest()


def remove_uploads(sent: Sequence[StoredFile], artifact_uri: str) -> None:
    """Take back what was sent to an artifact that is not to be; what cannot be removed is logged."""
    store, folder = _open_folder(artifact_uri)
    _remove_files(store, folder, sent)


def remove_abandoned_files(paths: Sequence[str], artifact_uri: str, still_ours: Permission) -> None:
    """Remove these files of an artifact that is not to have them: who sent them, if any, could not say so.

    Raises:
        AlreadyPublished: there is a manifest, and they may be part of it.
        StorageError: some of them are there yet.
    """
    store, folder = _open_folder(artifact_uri)
    still_ours()
    _require_unpublished(store, folder)
    for path in paths:
        store.delete(f"{folder}/{check_path(path)}", still_ours)


def remove_unfinished_artifact(
    artifact_uri: str,
    still_ours: Permission = lambda: None,
    on_removed: Callable[[], None] = lambda: None,
) -> None:
    """Remove what lies where an artifact was to be, unfinished uploads included, unless it is one.

    Only for who knows that nobody is at work there, or will be: `still_ours`, asked before each step, is to
    raise where somebody may be. `on_removed` is called after every file.

    Raises:
        StorageError: some of it is there yet.
    """
    store, folder = _open_folder(artifact_uri)
    if store.exists(f"{folder}/{MANIFEST_NAME}"):
        return
    for file in store.list(folder):
        store.delete(file.key, still_ours)
        on_removed()
    store.delete_prefix(folder, still_ours)


def _open_folder(artifact_uri: str) -> tuple[ArtifactStore, str]:
    output_uri, folder = split_uri(artifact_uri)
    return open_store(output_uri), folder


def _check_entry_files(entry: TowerEntry, files: Mapping[str, Path]) -> list[FileRef]:
    """Every file the entry names: exactly the ones given, as they are on disk now."""
    refs = list(entry.all_files)
    paths = [check_path(ref.path) for ref in refs]
    if len(set(paths)) != len(paths) or not all(path.startswith(f"{entry.name}/") for path in paths):
        raise InvalidArtifact(
            f"the entry of {entry.name} names a file twice, or another's: {', '.join(sorted(paths))}"
        )
    if odd := set(paths) ^ set(files):
        raise InvalidArtifact(f"the entry and the files to publish disagree on {', '.join(sorted(odd))}")
    for ref in refs:
        if file_ref(ref.path, files[ref.path]) != ref:
            raise InvalidArtifact(
                f"{files[ref.path]} is not the file that the entry describes", where=ref.path
            )
    return refs


def _claim_tower_folder(
    store: ArtifactStore, folder: str, tower: str, may_upload: Permission, *, replace_unfinished: bool
) -> None:
    """Refuse a tower's folder that is taken; clear one that a dead attempt left unfinished."""
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


def _require_all_named(manifest: Manifest, folder: str, sent: Sequence[StoredFile]) -> None:
    named = {f"{folder}/{ref.path}" for tower in manifest.towers for ref in tower.all_files}
    if odd := named ^ {file.key for file in sent}:
        raise InvalidArtifact(f"the manifest and what was sent disagree on {', '.join(sorted(odd))}")


def _require_only_uploads(
    store: ArtifactStore,
    folder: str,
    sent: Sequence[StoredFile],
    permission: Permission,
    *,
    replace_unfinished: bool,
) -> None:
    """Refuse a folder that holds anything but what was sent; clear what a dead attempt left beside it."""
    _require_unpublished(store, folder)
    versions = {file.key: (file.size, file.version) for file in sent}
    found = {file.key: file for file in store.list(folder)}
    for key, version in versions.items():
        if key not in found or (found[key].size, found[key].version) != version:
            uri = store.uri_of(key)
            raise StorageError(f"{uri} is not what was sent there", hint="try again", where=uri)
    if not (strays := [file for key, file in found.items() if key not in versions]):
        return
    if not replace_unfinished:
        raise _folder_taken(store, folder, strays)
    for stray in strays:
        store.delete(stray.key, permission)


def _require_uploads_remain(
    store: ArtifactStore, folder: str, manifest_key: str, sent: Sequence[StoredFile]
) -> None:
    """A manifest that was long on its way may meet a place that was cleared meanwhile: then it must go."""
    left = {file.key for file in store.list(folder)}
    if lost := [file.key for file in sent if file.key not in left]:
        store.delete(manifest_key)
        uri = store.uri_of(lost[0])
        raise StorageError(f"{uri} was removed while its manifest was written", hint="try again", where=uri)


def _upload_files(
    store: ArtifactStore,
    folder: str,
    refs: list[FileRef],
    files: Mapping[str, Path],
    sent: list[StoredFile],
    on_progress: OnProgress,
    may_upload: Permission,
) -> None:
    """Send every file, recording in `sent` what is this attempt's to remove."""
    total, count, end = sum(ref.size for ref in refs), 0, 0

    def report(more: int) -> None:
        nonlocal count
        count += more
        on_progress(count, total)
        if count < end:  # a file that is there is first to be recorded
            may_upload()

    for ref in refs:
        end += ref.size
        may_upload()
        key = f"{folder}/{ref.path}"
        store.put(files[ref.path], key, report)
        sent.append(store.stat(key))


def _check_stored_file(store: ArtifactStore, key: str, ref: FileRef) -> None:
    if store.size(key) != ref.size or store.sha256(key) != ref.sha256:
        uri = store.uri_of(key)
        raise StorageError(
            f"{uri} did not arrive as it was sent",
            hint="try again; if it stays so, the store damages files",
            where=uri,
        )


def _remove_files(store: ArtifactStore, folder: str, sent: Sequence[StoredFile]) -> None:
    """Take back what this attempt sent, unless a manifest stands: then it is part of an artifact.

    A file that another attempt has written in its place stays, even if it is the same to the byte.
    """
    try:
        if not store.exists(f"{folder}/{MANIFEST_NAME}"):
            for file in sent:
                if _is_unchanged(store, file):
                    store.delete(file.key)
    except ExportError:  # the failure that led here is the one to report
        log.warning("unfinished_artifact_left", exc_info=True, extra={"uri": store.uri_of(folder)})


def _is_unchanged(store: ArtifactStore, file: StoredFile) -> bool:
    """Whether the file is still the one that this very write made."""
    try:
        found = store.stat(file.key)
    except SourceNotFound:
        return False
    return (found.version, found.token) == (file.version, file.token)


def _manifest_text(manifest: Manifest) -> bytes:
    return (manifest.model_dump_json(indent=2) + "\n").encode()
