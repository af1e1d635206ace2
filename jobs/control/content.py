"""When two exports would make the same artifact: a digest over everything that decides what comes out.

Weights and rows are not read for it. They are taken to be the same when names, sizes and versions of their
files are, a version being an object's entity tag or a file's time of change; who rewrites a file in place
within the clock's grain and keeps its size needs `force`.
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

# What is done to make an artifact does not show in it, and sources count by what they hold.
_SOURCES = {"config", "config_uri", "checkpoint_uri", "item_input_uri", "sample_input_uri"}
_LEFT_OUT = {"ranks", "nodes", *_SOURCES}


def stat_files(uri: str) -> tuple[StoredFile, ...]:
    """The file a URI names, or those below the folder it names; SourceNotFound."""
    folder, name = split_uri(uri.rstrip("/"))
    store = open_store(folder)
    try:
        return (store.stat(name),)
    except SourceNotFound:
        if files := store.list(name):
            return files
        raise


def compute_content_key(spec: ExportSpec, identify: Identify = stat_files) -> str | None:
    """Equal for pinned specs that come to the same artifact; None where a source cannot be looked at.

    Nor can the package of a family of one's own, which may be another by now.
    """
    if spec.family is not None:
        return None
    sources = (spec.checkpoint_uri, spec.item_input_uri, spec.sample_input_uri)
    try:
        files = [uri and _identity(uri, identify) for uri in sources]
    except (ExportError, OSError):  # the attempt will say what is wrong with it
        return None
    asked = {
        "slipway": __version__,
        "config": hashlib.sha256((spec.config or "").encode()).hexdigest(),
        "spec": spec.model_dump(mode="json", exclude=_LEFT_OUT - _shard_fields(spec)),
        "sources": files,
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _identity(uri: str, identify: Identify) -> list[object]:
    return [uri, *([file.key, file.size, file.version] for file in identify(uri))]


def _shard_fields(spec: ExportSpec) -> set[str]:
    """What shows in an artifact whose tables are in shards: there is one of each for every rank."""
    return {"ranks", "nodes"} if spec.tables.sharded else set()
