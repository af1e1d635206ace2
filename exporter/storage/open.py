"""Open the store of a URI, and read and split URIs: the only module that knows every kind of store.

A new kind of store is one new file that defines `open_uri(uri)`, and one line in `_MODULES`: reading,
publishing, listing, parquet rows and the rules for URIs all go through these two. Two things are not part of
a store: the environment variables that a confined attempt inherits
(`worker/environment/attempt_environment.py`), and temporary credentials that are narrowed to one job, which
exist for S3 alone (`worker/environment/credentials.py`).
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

from exporter.errors import InvalidSpec
from exporter.storage.local import LocalStore
from exporter.storage.store import READ_LIMIT, ArtifactStore

# Modules of the remote stores, by scheme; imported when a URI first needs one: their libraries load slowly.
_MODULES = {
    "s3": "exporter.storage.object_store",
    "oss": "exporter.storage.oss_store",
    "gs": "exporter.storage.google_store",
    "az": "exporter.storage.azure_store",
}
Opener = Callable[[str], ArtifactStore]  # opens the store of a URI: `open_store`, or one that judges it first
SCHEMES = tuple(_MODULES)  # of the remote stores
ADVICE = f"give a path, or a URI that begins with {' or '.join(f'{each}://' for each in ('file', *SCHEMES))}"


def open_store(uri: str) -> ArtifactStore:
    """Open the store whose root is a folder: a path, `file:///path` or `s3://bucket/prefix` (docs/stores.md).

    Raises:
        InvalidSpec: no store has URIs of this form.
    """
    path = local_path(uri)
    if path is not None:
        return LocalStore(path)
    if not is_known(uri):
        raise InvalidSpec(f"{uri!r} is in no store Slipway knows", hint=ADVICE, where=uri)
    open_uri: Callable[[str], ArtifactStore] = import_module(_MODULES[scheme_of(uri)]).open_uri
    return open_uri(uri)


def is_known(uri: str) -> bool:
    """Return whether there is a store for the URI's scheme; the place itself need not exist."""
    return local_path(uri) is not None or scheme_of(uri) in _MODULES


def read_uri(uri: str, *, limit: int = READ_LIMIT) -> bytes:
    """Return the bytes of a small file; one of more than `limit` bytes is refused."""
    folder, key = split_uri(uri)
    return open_store(folder).read(key, limit=limit)


def split_uri(uri: str) -> tuple[str, str]:
    """Split a file's URI into the URI of its folder, to be opened, and its key there."""
    path = local_path(uri)
    folder, _, name = uri.rpartition("/") if path is None else (str(path.parent), "/", path.name)
    if not name or (path is None and folder.endswith("/")):
        raise InvalidSpec(f"{uri!r} names no file", hint="give the URI of a file", where=uri)
    return folder, name


def local_path(uri: str) -> Path | None:
    """Return the path that a plain path or a `file://` URI names; None for any other scheme."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return Path(uri)
    host, _, path = rest.partition("/")
    return Path("/" + unquote(path)) if scheme == "file" and host in ("", "localhost") else None


def scheme_of(uri: str) -> str:
    """Return what stands before "://"; all of a text that has no such part."""
    return uri.partition("://")[0]
