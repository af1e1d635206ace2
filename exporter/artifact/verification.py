"""Verification of a published artifact: every file is read again and held against its manifest."""

from collections.abc import Sequence
from enum import StrEnum

from exporter.artifact.read import require_file
from exporter.artifact.signing import SIGNATURE_NAME, VerifyingKey
from exporter.errors import InvalidArtifact
from exporter.frozen import Frozen
from exporter.manifest import TowerEntry
from exporter.storage.store import ArtifactStore


class Signature(StrEnum):
    """The knowledge of a manifest's signature."""

    VALID = "valid"  # by the key that was given
    UNCHECKED = "unchecked"  # there is one, and no key was given
    MISSING = "missing"


class FileCheck(Frozen):
    """One file that the manifest names; `problem` says what is wrong with it, and is empty if nothing is."""

    path: str
    size: int  # bytes, by the manifest
    problem: str = ""


def find_signature(store: ArtifactStore, key: VerifyingKey | None) -> Signature:
    """Say what is known of the signature of a manifest that was read with this `key`."""
    if key is not None:  # the manifest would have been refused
        return Signature.VALID
    return Signature.UNCHECKED if store.exists(SIGNATURE_NAME) else Signature.MISSING


def check_files(towers: Sequence[TowerEntry], store: ArtifactStore) -> tuple[FileCheck, ...]:
    """Read every file of these towers, and compare size and digest with those of the manifest.

    Raises:
        StorageError: the store cannot be read.
    """
    checks = []
    for ref in {file.path: file for tower in towers for file in tower.all_files}.values():
        problem = ""
        try:
            require_file(ref, store)
        except InvalidArtifact as error:
            problem = error.message
        checks.append(FileCheck(path=ref.path, size=ref.size, problem=problem))
    return tuple(checks)
