from pathlib import Path

import pytest

from exporter.errors import InvalidSpec, StorageError
from exporter.storage.local import LocalStore
from exporter.storage.memory import MemoryStore
from exporter.storage.open import local_path, open_store, read_uri, split_uri
from exporter.storage.store import join_uri


@pytest.mark.parametrize(
    ("uri", "folder", "name"),
    [
        ("s3://bucket/a/b.parquet", "s3://bucket/a", "b.parquet"),
        ("s3://bucket/b.parquet", "s3://bucket", "b.parquet"),
        ("/data/rows.parquet", "/data", "rows.parquet"),
        ("rows.parquet", ".", "rows.parquet"),
        ("file:///data/my%20rows", "/data", "my rows"),
    ],
)
def test_a_file_uri_splits_into_its_folder_and_key(uri: str, folder: str, name: str) -> None:
    assert split_uri(uri) == (folder, name)


@pytest.mark.parametrize("uri", ["s3://bucket", "s3://bucket/", "s3://", "/", "."])
def test_a_uri_that_names_no_file_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSpec, match="names no file"):
        split_uri(uri)


@pytest.mark.parametrize("uri", ["ftp://bucket/x", "http://host/x", "file://elsewhere/x", "s3:///x"])
def test_a_uri_of_no_known_store_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSpec):
        open_store(uri)


def test_an_s3_prefix_cannot_climb() -> None:
    with pytest.raises(StorageError, match="no key"):
        open_store("s3://bucket/a/../../b")


def test_a_file_uri_and_a_path_open_the_same_folder(tmp_path: Path) -> None:
    assert open_store(tmp_path.as_uri()).uri_of("a") == open_store(str(tmp_path)).uri_of("a")
    assert isinstance(open_store(str(tmp_path)), LocalStore)


def test_only_paths_and_file_uris_are_local() -> None:
    assert local_path("file:///a%20b") == Path("/a b")
    assert local_path("s3://bucket/a") is None


def test_joining_keeps_below_the_uri() -> None:
    assert join_uri("s3://bucket/a/", "b/c") == "s3://bucket/a/b/c"
    with pytest.raises(StorageError):
        join_uri("s3://bucket/a", "../b")


def test_a_small_file_is_read_by_its_uri(tmp_path: Path) -> None:
    (tmp_path / "pipeline.config").write_bytes(b"text")
    assert read_uri((tmp_path / "pipeline.config").as_uri()) == b"text"
    with pytest.raises(StorageError, match="more than 3 bytes"):
        read_uri(str(tmp_path / "pipeline.config"), limit=3)


def test_nothing_is_made_for_a_key_that_climbs(tmp_path: Path) -> None:
    """A bucket may list such a key, and its place below the workspace lies elsewhere."""
    key = "dense_ema/../../made/file"
    (tmp_path / "workspace" / "dense_ema").mkdir(parents=True)
    with pytest.raises(StorageError, match="no key"):
        MemoryStore().fetch(key, tmp_path / "workspace" / key)
    assert [path.name for path in tmp_path.iterdir()] == ["workspace"]
