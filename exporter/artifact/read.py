"""Read a published artifact and check it: the manifest, its signature, and the files that it names."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from exporter.artifact.reports import find_release_report
from exporter.artifact.signing import SIGNATURE_NAME, SigningKey, VerifyingKey
from exporter.errors import (
    AlreadyPublished,
    InvalidArtifact,
    SignatureRefused,
    SourceNotFound,
    StorageError,
)
from exporter.manifest import MANIFEST_NAME, FileRef, Manifest, TowerEntry
from exporter.outcome import ExportOutcome, Failure, TowerOutcome
from exporter.spec import TowerName
from exporter.storage.open import Opener, open_store
from exporter.storage.store import ArtifactStore, Permission, check_key, join_uri

log = logging.getLogger(__name__)


def file_ref(path: str, local: Path) -> FileRef:
    """Describe a local file whose path below the artifact's root will be `path`: its size and digest."""
    with local.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileRef(path=path, size=local.stat().st_size, sha256=digest)


def read_manifest(uri: str, key: VerifyingKey | None = None, *, opened: Opener = open_store) -> Manifest:
    """Read the manifest of an artifact, given the URI of the artifact or of the manifest itself.

    Raises:
        InvalidArtifact: there is no manifest, or this version cannot read it.
        SignatureRefused: a `key` is given, and it has not signed the manifest.
    """
    root = root_of(uri)
    where = join_uri(root, MANIFEST_NAME)
    store = opened(root)
    data = _read_manifest_bytes(store, root)
    if key is not None:  # before the bytes are parsed
        key.check(data, _read_signature(store), where)
    return _parse_manifest(data, where)


def _read_manifest_bytes(store: ArtifactStore, root: str) -> bytes:
    try:
        return store.read(MANIFEST_NAME)
    except SourceNotFound as error:
        raise InvalidArtifact(
            f"{root} is not an artifact: it has no {MANIFEST_NAME}",
            hint="give the URI <output>/<job id>; a folder without a manifest was never published",
            where=join_uri(root, MANIFEST_NAME),
        ) from error


def _parse_manifest(data: bytes, where: str) -> Manifest:
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise InvalidArtifact(
            f"{where} is not a manifest that this version reads: {describe_first_error(error)}", where=where
        ) from error


def describe_first_error(error: ValidationError) -> str:
    """Describe the first error of a JSON file that does not fit its schema: the field and what is wrong."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field or 'text'}: {first['msg']}"


def _read_signature(store: ArtifactStore) -> bytes:
    try:
        return store.read(SIGNATURE_NAME, limit=1024)
    except SourceNotFound as error:
        where = store.uri_of(SIGNATURE_NAME)
        raise SignatureRefused(f"the artifact is not signed: there is no {where}", where=where) from error


def require_job_id(manifest: Manifest, job_id: str, where: str) -> None:
    """Raise InvalidArtifact if the manifest at `where` belongs to another job."""
    if manifest.job_id != job_id:
        raise InvalidArtifact(f"{where} is of job {manifest.job_id}, not of {job_id}", where=where)


def sign_artifact(
    artifact_uri: str, job_id: str, key: SigningKey, sha256: str | None, *, opened: Opener = open_store
) -> None:
    """Sign the manifest if its digest is the one that its writer reported, and store the signature.

    If no digest was reported (None), nothing is signed: the manifest must have a signature of `key` already.

    Raises:
        InvalidArtifact: the manifest there belongs to another job, or is not the one that was written.
        SignatureRefused: the writer of the manifest is unknown, and it has no signature of this key.
    """
    root = root_of(artifact_uri)
    store, where = opened(root), join_uri(root, MANIFEST_NAME)
    data = _read_manifest_bytes(store, root)
    require_job_id(_parse_manifest(data, where), job_id, where)
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise InvalidArtifact(
            f"{where} is not the manifest that the attempt wrote, and is not signed",
            hint="find out who else can write there, and export again under a new job",
            where=where,
        )
    signature = key.sign(data)
    if sha256 is None:
        _require_signature(store, signature, where)
        return
    try:
        store.put_bytes(signature, SIGNATURE_NAME)
    except AlreadyPublished:
        _require_signature(store, signature, where)


def _require_signature(store: ArtifactStore, signature: bytes, where: str) -> None:
    """Raise SignatureRefused unless the stored signature equals this one; Ed25519 is deterministic."""
    try:
        found = store.read(SIGNATURE_NAME, limit=1024)
    except SourceNotFound:
        found = None
    if found != signature:
        raise SignatureRefused(
            f"{where} is {'not signed' if found is None else 'signed with another key than the worker has'}",
            hint="an attempt that ended early may have written it, and its origin cannot be proved: "
            "export again under a new job",
            where=where,
        )


def verify_artifact(uri: str, key: VerifyingKey) -> Manifest:
    """Check the manifest's signature and the digest of every file that it names; return the manifest.

    Raises:
        SignatureRefused: `key` has not signed the manifest.
        InvalidArtifact: a file is missing, or its digest is not the one in the manifest.
    """
    manifest = read_manifest(uri, key)
    _require_all_files(manifest, open_store(root_of(uri)))
    return manifest


def _require_all_files(
    manifest: Manifest, store: ArtifactStore, still_ours: Callable[[], object] = lambda: None
) -> None:
    for ref in (ref for tower in manifest.towers for ref in tower.all_files):
        still_ours()
        require_file(ref, store)


def require_file(ref: FileRef, store: ArtifactStore) -> None:
    """Raise InvalidArtifact unless the store has the file, with the size and the digest of the manifest."""
    path = check_path(ref.path)
    if not store.exists(path):
        raise _missing_file(store.uri_of(path))
    if store.size(path) != ref.size or store.sha256(path) != ref.sha256:
        raise _damaged_file(store.uri_of(path))


def recover_published_outcome(
    uri: str,
    job_id: str,
    towers: Sequence[TowerName],
    still_ours: Permission = lambda: None,
    *,
    opened: Opener = open_store,
) -> ExportOutcome | None:
    """Return the outcome of an earlier attempt of this job that published and died before it could report it.

    Return None if nothing is published. The outcome has no manifest digest, as nobody knows whether the
    manifest is the one which that attempt wrote. A manifest whose files are incomplete was written too late,
    by an attempt that had lost the job: it is not an artifact, was reported to nobody, and is removed.
    Therefore only the holder of the job may call this: `still_ours`, called before each file is read and
    before the removal, must raise for anybody else.

    Raises:
        InvalidArtifact: a manifest of another job is there.
        StorageError: the manifest to be removed was replaced by another one.
    """
    root = root_of(uri)
    where, store = join_uri(root, MANIFEST_NAME), opened(root)
    try:
        version = store.stat(MANIFEST_NAME).version
        manifest = read_manifest(root, opened=opened)
    except (InvalidArtifact, SourceNotFound):
        return None
    require_job_id(manifest, job_id, where)
    try:
        _require_all_files(manifest, store, still_ours)
    except InvalidArtifact as error:
        log.warning("manifest_files_missing", extra={"uri": where, "reason": error.message})
        _remove_manifest(store, version, still_ours)
        return None
    entries = {entry.name: entry for entry in manifest.towers}
    release = find_release_report(store, job_id)
    lost = Failure(
        code="attempt_failed", message="failed in an earlier attempt that ended before it could report why"
    )
    return ExportOutcome(
        towers=tuple(
            successful_outcome(entries[name], root)
            if name in entries
            else TowerOutcome(tower=name, failure=lost)
            for name in towers
        ),
        manifest_uri=where,
        release=release.report if release else None,
        release_sha256=release.sha256 if release else None,
    )


def _remove_manifest(store: ArtifactStore, version: str, still_ours: Permission) -> None:
    """Remove the manifest of this version: another may have been published while the files were digested."""
    still_ours()
    try:
        found = store.stat(MANIFEST_NAME).version
    except SourceNotFound:
        return
    if found != version:
        where = store.uri_of(MANIFEST_NAME)
        raise StorageError(f"{where} was replaced while its files were read", hint="try again", where=where)
    store.delete(MANIFEST_NAME, still_ours)


def successful_outcome(entry: TowerEntry, root: str) -> TowerOutcome:
    """Return the outcome of a tower that is part of the artifact."""
    return TowerOutcome(tower=entry.name, entry=entry, package_uri=join_uri(root, entry.package.path))


def fetch_manifest(uri: str, into: Path, key: VerifyingKey | None = None) -> Manifest:
    """Download the manifest, and its signature if there is one, to the folder `into`; return the manifest.

    Raises as `read_manifest` does.
    """
    root = root_of(uri)
    store, where = open_store(root), join_uri(root, MANIFEST_NAME)
    data = _read_manifest_bytes(store, root)
    if key is not None:
        key.check(data, _read_signature(store), where)
    into.mkdir(parents=True, exist_ok=True)
    (into / MANIFEST_NAME).write_bytes(data)
    if store.exists(SIGNATURE_NAME):
        (into / SIGNATURE_NAME).write_bytes(_read_signature(store))
    return _parse_manifest(data, where)


def fetch_tower(uri: str, tower: TowerName, into: Path, key: VerifyingKey | None = None) -> Path:
    """Download the files that serve one tower, check each, and return the tower's folder.

    Files are written below `into`.

    Raises:
        InvalidArtifact: the artifact has no such tower, or a file's digest is not the one in the manifest.
    """
    root = root_of(uri)
    entry = find_tower(read_manifest(root, key), tower, root)
    store = open_store(root)
    fetch_files(store, entry.served_files, into)
    return into / entry.name


def fetch_files(store: ArtifactStore, files: Sequence[FileRef], into: Path) -> None:
    """Download files of an artifact to their paths below `into`.

    Raises:
        InvalidArtifact: a file is missing, or its digest is not the one in the manifest.
    """
    for ref in files:
        _fetch_file(store, ref, into / check_path(ref.path))


def _fetch_file(store: ArtifactStore, ref: FileRef, local: Path) -> None:
    where = store.uri_of(ref.path)
    try:
        store.fetch(ref.path, local)
    except SourceNotFound as error:
        raise _missing_file(where) from error
    if file_ref(ref.path, local) != ref:
        local.unlink()
        raise _damaged_file(where)


def _missing_file(where: str) -> InvalidArtifact:
    return InvalidArtifact(f"{where} is missing, though the manifest names it", where=where)


def _damaged_file(where: str) -> InvalidArtifact:
    return InvalidArtifact(
        f"{where} is damaged: its digest is not the one in the manifest",
        hint="export again, under a new job",
        where=where,
    )


def root_of(uri: str) -> str:
    """Return the URI of an artifact's folder, given that or its manifest's."""
    return uri.rstrip("/").removesuffix(f"/{MANIFEST_NAME}")


def find_tower(manifest: Manifest, tower: TowerName, root: str) -> TowerEntry:
    """Return a tower's entry; raise InvalidArtifact if the artifact at `root` has no such tower."""
    for entry in manifest.towers:
        if entry.name is tower:
            return entry
    names = ", ".join(entry.name for entry in manifest.towers)
    raise InvalidArtifact(f"{root} has no {tower} tower", hint=f"its towers: {names}", where=root)


def require_towers(manifest: Manifest, towers: Sequence[TowerName], root: str) -> tuple[TowerEntry, ...]:
    """Return the entries of these towers, of all if none is named; raise InvalidArtifact as `find_tower`."""
    return tuple(find_tower(manifest, name, root) for name in towers) or manifest.towers


def check_path(path: str) -> str:
    """Return `path`, or raise InvalidArtifact if it could lead out of the artifact's folder."""
    try:
        return check_key(path)
    except StorageError as error:
        raise InvalidArtifact(f"the manifest names {path!r}, which could lie outside the artifact") from error
