"""Prepare an artifact that lies anywhere: remote files are fetched beside the folder to be written."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from exporter.artifact.read import fetch_manifest, fetch_tower, find_tower, root_of
from exporter.errors import StorageError
from exporter.serving.loader_errors import as_export_error
from exporter.spec import TowerName
from exporter.storage.open import local_path
from slipway.loading.errors import LoaderError
from slipway.loading.layout.prepare import prepare


def prepare_artifact(
    uri: str, folder: Path, key: Path | None = None, towers: Sequence[TowerName] = ()
) -> Path:
    """Unpack an artifact to `folder` for servers, all of its towers or those named; return the folder.

    Raises:
        SignatureRefused: there is a public `key`, which has not signed the artifact.
        InvalidArtifact: it is incomplete or damaged, or has no such tower.
        StorageError: the folder is there, or cannot be written.
    """
    root = root_of(uri)
    try:
        if (local := local_path(root)) is not None:
            return prepare(local, folder, key=key, towers=towers)
        with _room_beside(folder) as temporary:
            fetched = Path(temporary)
            manifest = fetch_manifest(root, fetched)
            for name in towers or tuple(entry.name for entry in manifest.towers):
                fetch_tower(root, find_tower(manifest, name, root).name, fetched)
            return prepare(fetched, folder, key=key, towers=towers)
    except LoaderError as error:
        raise as_export_error(error) from error


def _room_beside(folder: Path) -> "tempfile.TemporaryDirectory[str]":
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.fetched-")
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror}", where=str(folder)) from error
