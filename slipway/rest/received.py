"""The files of an artifact as a client receives them: for a folder that is there whole, or to be checked."""

import hashlib
import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from slipway.rest import calls
from slipway.rest.answers import Manifest
from slipway.rest.calls import Call
from slipway.rest.errors import DownloadFailed, SignatureRefused
from slipway.rest.json_values import JsonObject, read
from slipway.rest.names import TowerName
from slipway.signatures import SIGNATURE_NAME, UnsoundSignature, check_signature

MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class FileRef:
    """A file of an artifact, as its manifest names it."""

    path: str
    size: int  # bytes
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The part of a job's artifact to fetch: `towers`, by default all, of one `target` of a job with several.

    With a `key`, the file of a public key, the manifest must be signed by it.
    """

    towers: Collection[TowerName | str] = ()
    target: str | None = None
    key: Path | None = None


@dataclass(frozen=True)
class Fetch:
    """The next file that a client has to get, and write to its place."""

    call: Call[None]
    path: str
    may_be_missing: bool = False


class Sink(Protocol):
    """Takes the bytes of a file as they come."""

    def write(self, data: bytes, /) -> object: ...


class Received(ABC):
    """Files of an artifact as they come in, which are held against its manifest."""

    @abstractmethod
    def write(self, path: str) -> AbstractContextManager[Sink]:
        """Give what takes the bytes of a new file."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the bytes of the manifest, or of its signature, once it has come."""

    @abstractmethod
    def digest(self, path: str) -> str:
        """Return the sha256 of a file that has come."""

    def fetch_all(self, job_id: str, wanted: Wanted) -> Generator[Fetch, bool | None, Manifest]:
        """Yield what has to be fetched, in order; take whether it was there, and return the manifest.

        Raises:
            DownloadFailed: a file is not the one in the manifest, or there is no such tower.
            SignatureRefused: the key has not signed the manifest.
        """
        yield Fetch(calls.file(job_id, MANIFEST_NAME, wanted.target), MANIFEST_NAME)
        signature = calls.file(job_id, SIGNATURE_NAME, wanted.target)
        is_signed = yield Fetch(signature, SIGNATURE_NAME, may_be_missing=True)
        if wanted.key is not None:
            if not is_signed:
                raise SignatureRefused("the artifact is not signed", where=job_id)
            self._check_signature(wanted.key)
        manifest = self._manifest()
        if manifest.get("job_id") != job_id:  # else a store could show a signed artifact in another's place
            raise DownloadFailed("the manifest is of another job", where=MANIFEST_NAME)
        for file in files_of(manifest, wanted.towers):
            yield Fetch(calls.file(job_id, file.path, wanted.target), file.path)
            self._check(file)
        return manifest

    def _check_signature(self, key: Path) -> None:
        try:
            check_signature(self.read(MANIFEST_NAME), self.read(SIGNATURE_NAME), key)
        except UnsoundSignature as error:
            raise SignatureRefused(str(error), hint=error.hint, where=MANIFEST_NAME) from error

    def _manifest(self) -> Manifest:
        try:
            return Manifest.read(json.loads(self.read(MANIFEST_NAME)))
        except ValueError as error:
            raise DownloadFailed(
                "the service's manifest is none that this version reads", where=MANIFEST_NAME
            ) from error

    def _check(self, file: FileRef) -> None:
        if self.digest(file.path) != file.sha256:
            raise DownloadFailed(
                f"{file.path} is not the file in the manifest: its digest differs", where=file.path
            )


class Digests(Received):
    """Files of which nothing is kept but the digest; of the manifest and its signature, the bytes."""

    def __init__(self) -> None:
        """Begin without a file."""
        self._digests: dict[str, str] = {}
        self._kept: dict[str, bytes] = {}

    @contextmanager
    def write(self, path: str) -> Iterator[Sink]:
        if path in (MANIFEST_NAME, SIGNATURE_NAME):
            kept = BytesIO()
            yield kept
            self._kept[path] = kept.getvalue()
            return
        digest = _Digest()
        yield digest
        self._digests[path] = digest.sha256.hexdigest()

    def read(self, path: str) -> bytes:
        return self._kept[path]

    def digest(self, path: str) -> str:
        return self._digests[path]


class _Digest:
    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes, /) -> None:
        self.sha256.update(data)


class Download(Received):
    """Files below a folder beside the final one, which takes its place when the block ends well."""

    def __init__(self, into: Path) -> None:
        """Download to the folder `into`, which must not exist yet.

        Raises:
            DownloadFailed: it exists, or cannot be made.
        """
        self._into = into.absolute()
        if self._into.exists():
            raise DownloadFailed(f"{into} exists", hint="name a folder that does not", where=str(into))
        try:
            self._into.parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{self._into.name}.partial-"
            self._folder = Path(tempfile.mkdtemp(prefix=prefix, dir=self._into.parent))
        except OSError as error:
            raise _cannot_write(error, into) from error

    def __enter__(self) -> Self:
        """Begin with an empty folder."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Move the folder to its place, or remove it after an error."""
        try:
            if error is None:
                self._folder.chmod(0o755)
                self._folder.rename(
                    self._into
                )  # refuses a folder that has appeared meanwhile and holds files
        except OSError as failure:
            raise _cannot_write(failure, self._into) from failure
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def write(self, path: str) -> Iterator[Sink]:
        """Give a new file below the folder to write to."""
        local = self._folder / check_path(path)
        try:
            local.parent.mkdir(parents=True, exist_ok=True)
            with local.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _cannot_write(error, self._into) from error

    def read(self, path: str) -> bytes:
        return (self._folder / check_path(path)).read_bytes()

    def digest(self, path: str) -> str:
        with (self._folder / path).open("rb") as written:
            return hashlib.file_digest(written, "sha256").hexdigest()


def files_of(manifest: Manifest, towers: Collection[TowerName | str]) -> tuple[FileRef, ...]:
    """Return the files of these towers, of all if none is named; each file once.

    Raises:
        DownloadFailed: the artifact has no such tower, or its manifest is none that this version reads.
    """
    try:
        names = [entry["name"] for entry in manifest["towers"]]
        if missing := sorted(set(towers) - set(names)):
            hint = f"its towers: {', '.join(names)}"
            raise DownloadFailed(f"the artifact has no {missing[0]} tower", hint=hint, where="towers")
        chosen = (entry for entry in manifest["towers"] if not towers or entry["name"] in towers)
        return tuple({file.path: file for entry in chosen for file in _files_in(entry)}.values())
    except (KeyError, TypeError, ValueError) as error:
        raise DownloadFailed(
            f"the manifest is none that this version reads: {error}", where=MANIFEST_NAME
        ) from error


def _files_in(value: object) -> Iterator[FileRef]:
    """Yield every file that a part of the manifest names: an object of a path, a size and a digest."""
    if isinstance(value, JsonObject):
        if "path" in value and "sha256" in value:
            yield read(FileRef, value)
            return
        for each in value.values():
            yield from _files_in(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from _files_in(each)


def check_path(path: str) -> str:
    """Return the path; raise DownloadFailed if it could lead out of the folder."""
    if "\0" in path or any(name in ("", ".", "..") for name in path.split("/")):
        raise DownloadFailed(f"the manifest names {path!r}, which could lie outside the artifact", where=path)
    return path


def _cannot_write(error: OSError, into: Path) -> DownloadFailed:
    return DownloadFailed(
        f"{into} cannot be written: {error.strerror or error}",
        hint="name another folder, or make room there",
        where=str(into),
    )
