"""What every store promises, tried on each of them."""

import hashlib
from pathlib import Path

import pytest

from exporter.errors import AlreadyPublished, LeaseUnproven, SourceNotFound, StorageError
from exporter.storage.memory import MemoryStore
from exporter.storage.open import open_store
from exporter.storage.store import ArtifactStore, StoredFile
from tests.stores.parts import store_in_parts

PART_SIZE = 5 << 20  # the smallest S3 allows
LARGE = bytes(range(256)) * (11 << 12)  # 11 MiB: three parts


@pytest.fixture(
    params=["memory", "local", "s3", "s3_parts", "oss", "oss_parts", "gs", "gs_parts", "az", "az_parts"]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return open_store(str(tmp_path / "store"))
    scheme, _, parts = request.param.partition("_")
    uri = request.getfixturevalue(f"{scheme}_uri")
    return store_in_parts(uri, PART_SIZE) if parts else open_store(uri)


@pytest.fixture
def large_file(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    return path


def test_what_was_put_can_be_read(store: ArtifactStore) -> None:
    store.put_bytes(b"abc", "a/b.txt")
    assert store.read("a/b.txt") == b"abc"
    assert store.size("a/b.txt") == 3
    assert store.exists("a/b.txt")


def test_an_empty_file_can_be_stored(store: ArtifactStore) -> None:
    store.put_bytes(b"", "empty")
    assert store.read("empty") == b""


def test_a_large_file_comes_back_bit_for_bit(store: ArtifactStore, large_file: Path, tmp_path: Path) -> None:
    sent: list[int] = []
    store.put(large_file, "large", sent.append)
    store.fetch("large", tmp_path / "new" / "copy")
    assert (tmp_path / "new" / "copy").read_bytes() == LARGE
    assert sum(sent) == store.size("large") == len(LARGE)
    assert store.sha256("large") == hashlib.sha256(LARGE).hexdigest()


@pytest.mark.parametrize("second", [b"one", b"two", LARGE], ids=["same", "other", "large"])
def test_a_key_is_never_overwritten(store: ArtifactStore, second: bytes) -> None:
    store.put_bytes(b"one", "key")
    with pytest.raises(AlreadyPublished, match="key exists"):
        store.put_bytes(second, "key")
    assert store.read("key") == b"one"


def test_a_file_can_be_read_at_any_position(store: ArtifactStore, large_file: Path) -> None:
    store.put(large_file, "large")
    with store.open_file("large") as file:
        assert file.seek(0, 2) == len(LARGE)
        assert file.read(1) == b""
        assert file.seek(-3, 2) == len(LARGE) - 3
        assert file.read(10) == LARGE[-3:]
        assert file.seek(5 << 20) == file.tell()
        assert file.read(300) == LARGE[5 << 20 : (5 << 20) + 300]
    with pytest.raises(SourceNotFound):
        store.open_file("absent")


def test_a_folder_lists_its_own_files_sorted(store: ArtifactStore) -> None:
    for key in ("job1/b", "job1/a/c", "job10/x", "top"):
        store.put_bytes(b"12", key)
    assert store.list("job1") == (StoredFile(key="job1/a/c", size=2), StoredFile(key="job1/b", size=2))
    assert [file.key for file in store.list()] == ["job1/a/c", "job1/b", "job10/x", "top"]
    assert store.list("absent") == ()


def test_a_missing_key_is_named(store: ArtifactStore, tmp_path: Path) -> None:
    for read in (store.read, store.size, store.sha256):
        with pytest.raises(SourceNotFound, match=r"there is no .*absent/key"):
            read("absent/key")
    with pytest.raises(SourceNotFound):
        store.fetch("absent/key", tmp_path / "copy")
    assert not store.exists("absent/key")
    assert not (tmp_path / "copy").exists()


def test_reading_is_bounded(store: ArtifactStore) -> None:
    store.put_bytes(b"12345", "key")
    assert store.read("key", limit=5) == b"12345"
    with pytest.raises(StorageError, match="more than 4 bytes"):
        store.read("key", limit=4)


@pytest.mark.parametrize("key", ["", "/etc/passwd", "..", "a/../../b", "a//b", "./a", "a/", "a\0b"])
def test_no_key_leaves_the_store(store: ArtifactStore, key: str, tmp_path: Path) -> None:
    for use in (store.read, store.delete, store.delete_prefix, lambda key: store.put_bytes(b"", key)):
        with pytest.raises(StorageError, match="no key") as refusal:
            use(key)
        assert not refusal.value.retryable


def test_deleting_a_folder_spares_its_neighbours(store: ArtifactStore) -> None:
    for key in ("job1/a/b", "job1/c", "job10/x"):
        store.put_bytes(b"", key)
    store.delete_prefix("job1")
    store.delete_prefix("job1")
    assert [file.key for file in store.list()] == ["job10/x"]


def test_nothing_is_removed_without_the_right_to_it(store: ArtifactStore) -> None:
    store.put_bytes(b"", "job1/a")

    def refuse() -> None:
        raise LeaseUnproven("another has the job")

    for remove in (store.delete_prefix, store.delete):
        with pytest.raises(LeaseUnproven):
            remove("job1" if remove == store.delete_prefix else "job1/a", refuse)
    assert [file.key for file in store.list()] == ["job1/a"]


def test_deleting_a_file_spares_its_neighbours(store: ArtifactStore) -> None:
    store.put_bytes(b"", "folder/a")
    store.put_bytes(b"", "folder/b")
    store.delete("folder/a")
    store.delete("folder/absent")
    assert [file.key for file in store.list()] == ["folder/b"]
    store.put_bytes(b"again", "folder/a")


def test_a_local_file_that_is_not_there_is_named(store: ArtifactStore, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="absent"):
        store.put(tmp_path / "absent", "key")
    assert not store.exists("key")
