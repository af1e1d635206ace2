import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.errors import AlreadyPublished, SourceNotFound, StorageError, UriNotAllowed
from exporter.storage.local import LocalStore, publish, translate_errors


class _Breaks(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise RuntimeError("broken source")


def test_a_broken_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="broken source"):
        LocalStore(tmp_path).write(_Breaks(), 5, "key")
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_file_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".key.0123.unfinished").touch()
    assert LocalStore(tmp_path).list() == ()


def test_a_dot_file_is_listed(tmp_path: Path) -> None:
    (tmp_path / ".metadata").touch()
    assert [file.key for file in LocalStore(tmp_path).list()] == [".metadata"]


def test_a_stored_file_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    LocalStore(tmp_path).put_bytes(b"", "stored")
    (tmp_path / "plain").touch()
    assert (tmp_path / "stored").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "stored"}


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(SourceNotFound):
        LocalStore(tmp_path).read("folder")
    assert not LocalStore(tmp_path).exists("folder")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_could_be_read_for_ever_is_refused_at_once(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "pipe")
    with pytest.raises(SourceNotFound, match="pipe is not a regular file"):
        LocalStore(tmp_path).read("pipe")
    assert not LocalStore(tmp_path).exists("pipe")


def test_a_key_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put_bytes(b"", "file")
    with pytest.raises(SourceNotFound, match="file"):
        store.put_bytes(b"", "file/below")


def test_deleting_the_last_file_removes_its_folders(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put_bytes(b"", "a/b/c")
    store.delete("a/b/c")
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written_is_found_without_a_try(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    LocalStore(tmp_path / "new" / "folder").require_writable()
    for name in ("file", "file/below", "nowhere"):
        with pytest.raises(StorageError, match=f"nothing can be written to {tmp_path / name}") as refused:
            LocalStore(tmp_path / name).require_writable()
        assert not refused.value.retryable
    assert {path.name for path in tmp_path.iterdir()} == {"file", "nowhere"}


def test_a_read_only_place_is_found_without_a_try() -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:  # where another user gets to
        Path(folder).chmod(0o555)
        if user == 0:  # who may write to any folder
            os.seteuid(65534)
        try:
            with pytest.raises(StorageError, match=f"nothing can be .* {folder} is read-only") as refused:
                LocalStore(Path(folder, "out")).require_writable()
        finally:
            os.seteuid(user)
    assert not refused.value.retryable


def test_a_name_that_no_disk_takes_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="File name too long") as refused:
        LocalStore(tmp_path).put_bytes(b"", "n" * 300)
    assert (refused.value.retryable, refused.value.hint) == (False, "check the disk")


def test_a_file_system_without_links_is_named_as_such(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(StorageError, match="the file system there has no hard links") as refused:
            # No file system links folders; some link nothing.
            publish(folder, "linked", folder, tmp_path / "linked")
    finally:
        os.close(folder)
    assert not refused.value.retryable


def test_a_full_disk_is_said_to_be_full() -> None:
    with pytest.raises(OSError, match="No space left") as raised, Path("/dev/full").open("wb", 0) as full:
        full.write(b"x")
    with pytest.raises(StorageError) as refused, translate_errors(Path("/dev/full")):
        raise raised.value
    assert (refused.value.retryable, refused.value.hint) == (True, "make room there, or choose another place")


def test_linked_folders_are_listed_for_readers_only(tmp_path: Path) -> None:
    """Whoever removes what an unfinished artifact left must not be led into another folder."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"x")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "link").symlink_to(tmp_path / "elsewhere")
    store = LocalStore(tmp_path / "store")
    assert store.list() == ()
    assert [file.key for file in store.list(follow_links=True)] == ["link/file"]


class TestLinks:
    """Nothing is written or removed behind a link that lies below the store's root."""

    @pytest.fixture
    def outside(self, tmp_path: Path) -> Path:
        folder = tmp_path / "outside"
        folder.mkdir()
        (folder / "kept").write_bytes(b"kept")
        return folder

    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        (tmp_path / "disk" / "store").mkdir(parents=True)
        (tmp_path / "mounted").symlink_to(tmp_path / "disk")  # as operators do
        return LocalStore(tmp_path / "mounted" / "store")

    def test_the_root_may_be_reached_by_a_link(self, store: LocalStore, tmp_path: Path) -> None:
        store.put_bytes(b"1", "a/b")
        assert (tmp_path / "disk/store/a/b").read_bytes() == store.read("a/b") == b"1"
        store.delete("a/b")
        assert store.list() == ()

    @pytest.mark.parametrize("name", ["job", "job/tower", "job/tower/file"])
    @pytest.mark.parametrize("exists", [True, False], ids=["folder", "dangling"])
    def test_nothing_is_written_behind_a_link(
        self, store: LocalStore, tmp_path: Path, outside: Path, name: str, exists: bool
    ) -> None:
        link = tmp_path / "disk/store" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(outside if exists else outside / "new")
        with pytest.raises((UriNotAllowed, AlreadyPublished)):
            store.put_bytes(b"x", "job/tower/file")
        assert [path.name for path in outside.iterdir()] == ["kept"]

    @pytest.mark.parametrize("name", ["job", "job/tower"])
    def test_nothing_is_removed_behind_a_link(
        self, store: LocalStore, tmp_path: Path, outside: Path, name: str
    ) -> None:
        link = tmp_path / "disk/store" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(outside)
        for remove in (store.delete, store.delete_prefix):
            with pytest.raises(UriNotAllowed, match="is a link"):
                remove(f"{name}/kept")
        with pytest.raises(UriNotAllowed, match="is a link"):
            store.delete_prefix(name)
        assert (outside / "kept").read_bytes() == b"kept"

    def test_a_link_is_removed_and_not_its_target(
        self, store: LocalStore, tmp_path: Path, outside: Path
    ) -> None:
        (tmp_path / "disk/store/link").symlink_to(outside / "kept")
        store.delete("link")
        assert not os.path.lexists(tmp_path / "disk/store/link")
        assert (outside / "kept").exists()

    def test_another_file_under_the_unfinished_name_is_not_published(
        self, store: LocalStore, tmp_path: Path, outside: Path
    ) -> None:
        """Whoever watches the folder may replace the unfinished file before it gets its name."""

        def replace(count: int) -> None:
            (unfinished,) = (tmp_path / "disk/store").glob(".file.*")
            unfinished.unlink()
            unfinished.symlink_to(outside / "kept")

        with pytest.raises(SourceNotFound):
            store.write(io.BytesIO(b"mine"), 4, "file", replace)
        assert not os.path.lexists(tmp_path / "disk/store/file")
        assert (outside / "kept").read_bytes() == b"kept"
