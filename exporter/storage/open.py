"""Open the store of a URI, and read and split URIs: the only module that knows every kind of store."""

from pathlib import Path
from urllib.parse import unquote

from exporter.errors import InvalidSpec
from exporter.storage.local import LocalStore
from exporter.storage.store import READ_LIMIT, ArtifactStore


def open_store(uri: str) -> ArtifactStore:
    """The store of a folder: a path, `file:///path` or `s3://bucket/prefix`."""
    if uri.startswith("s3://"):
        from exporter.storage.object_store import open_object_store  # boto3 only where it is used

        return open_object_store(uri)
    path = local_path(uri)
    if path is None:
        raise InvalidSpec(
            f"{uri!r} is in no store Slipway knows", hint="give a path, a file:// or an s3:// URI", where=uri
        )
    return LocalStore(path)


def read_uri(uri: str, *, limit: int = READ_LIMIT) -> bytes:
    """A small file's bytes, by its URI; one of more than `limit` bytes is refused."""
    folder, key = split_uri(uri)
    return open_store(folder).read(key, limit=limit)


def split_uri(uri: str) -> tuple[str, str]:
    """A file's URI as its folder's URI, to be opened, and its key there."""
    path = local_path(uri)
    folder, _, name = uri.rpartition("/") if path is None else (str(path.parent), "/", path.name)
    if not name or (path is None and folder.endswith("/")):
        raise InvalidSpec(f"{uri!r} names no file", hint="give the URI of a file", where=uri)
    return folder, name


def local_path(uri: str) -> Path | None:
    """The path that a plain path or a `file://` URI names; None for any other scheme."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return Path(uri)
    host, _, path = rest.partition("/")
    return Path("/" + unquote(path)) if scheme == "file" and host in ("", "localhost") else None
