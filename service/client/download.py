"""An artifact on its way to a local folder, which is there whole or not at all."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from pydantic import ValidationError

from exporter.artifact.read import check_path
from exporter.artifact.signing import VerifyingKey
from exporter.manifest import MANIFEST_NAME, FileRef, Manifest
from exporter.spec import TowerName
from service.client.errors import DownloadFailed


class Download:
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
    def write(self, path: str) -> Iterator[BinaryIO]:
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

    def manifest(self) -> Manifest:
        """Return the manifest that was written; its signature, if a key was given, is checked already."""
        try:
            return Manifest.model_validate_json(self.read(MANIFEST_NAME))
        except ValidationError as error:
            raise DownloadFailed(
                "the service's manifest is none that this version reads", where=MANIFEST_NAME
            ) from error

    def check(self, file: FileRef) -> None:
        """Raise DownloadFailed unless the file that was written is the one in the manifest."""
        with (self._folder / file.path).open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        if digest != file.sha256:
            raise DownloadFailed(
                f"{file.path} is not the file in the manifest: its digest differs", where=file.path
            )

    def check_signature(self, key: VerifyingKey, signature_path: str) -> None:
        """Raise SignatureRefused unless `key` has signed the manifest that was written."""
        key.check(self.read(MANIFEST_NAME), self.read(signature_path), MANIFEST_NAME)


def files_of(manifest: Manifest, towers: Collection[TowerName]) -> tuple[FileRef, ...]:
    """Return the files of these towers, of all if none is named; each file once.

    Raises:
        DownloadFailed: the artifact has no such tower.
    """
    names = [entry.name for entry in manifest.towers]
    if missing := sorted(set(towers) - set(names)):
        raise DownloadFailed(
            f"the artifact has no {missing[0]} tower", hint=f"its towers: {', '.join(names)}", where="towers"
        )
    chosen = (entry for entry in manifest.towers if not towers or entry.name in towers)
    return tuple({file.path: file for entry in chosen for file in entry.all_files}.values())


def _cannot_write(error: OSError, into: Path) -> DownloadFailed:
    return DownloadFailed(
        f"{into} cannot be written: {error.strerror or error}",
        hint="name another folder, or make room there",
        where=str(into),
    )
