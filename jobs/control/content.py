"""The content key: a digest that is equal for exports which would make the same artifact.

Weights and rows are not read for it. Files count as unchanged while their names, sizes and versions are the
same; a version is an object's entity tag or a file's time of change. Whoever rewrites a file in place within
the clock's resolution, with the same size, needs `force`.
"""

import hashlib
import json
from collections.abc import Callable

from exporter.errors import ExportError, SourceNotFound
from exporter.spec import ExportSpec
from exporter.storage.open import open_store, split_uri
from exporter.storage.store import StoredFile
from exporter.version import __version__

Identify = Callable[[str], tuple[StoredFile, ...]]

# Left out: how the work is spread does not change the artifact, and sources count by their content.
_SOURCES = {"config", "config_uri", "checkpoint_uri", "item_input_uri", "sample_input_uri"}
_LEFT_OUT = {"ranks", "nodes", *_SOURCES}


def stat_files(uri: str) -> tuple[StoredFile, ...]:
    """Return the file that a URI names, or the files below the folder that it names.

    Raises:
        SourceNotFound: there is neither.
    """
    folder, name = split_uri(uri.rstrip("/"))
    store = open_store(folder)
    try:
        return (store.stat(name),)
    except SourceNotFound:
        if files := store.list(name):
            return files
        raise


def compute_content_key(spec: ExportSpec, identify: Identify = stat_files) -> str | None:
    """Return a key that is equal for pinned specs with the same artifact; None if that cannot be known.

    It cannot be known if a source cannot be listed, or for a custom model family, whose package may have
    changed.
    """
    if spec.family is not None:
        return None
    sources = (spec.checkpoint_uri, spec.item_input_uri, spec.sample_input_uri, spec.gate_rows_uri)
    try:
        files = [uri and _identity(uri, identify) for uri in sources]
    except (ExportError, OSError):  # the attempt will report the error
        return None
    content = {
        "slipway": __version__,
        "config": hashlib.sha256((spec.config or "").encode()).hexdigest(),
        "spec": spec.model_dump(mode="json", exclude=_LEFT_OUT - _shard_fields(spec)),
        "sources": files if spec.release_gate else files[:-1],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _identity(uri: str, identify: Identify) -> list[object]:
    return [uri, *([file.key, file.size, file.version] for file in identify(uri))]


def _shard_fields(spec: ExportSpec) -> set[str]:
    """Return the fields that show in an artifact with sharded tables, which has one shard per rank."""
    return {"ranks", "nodes"} if spec.tables.sharded else set()
