"""Files that are looked at on an event loop."""

from pathlib import Path

import pytest

from jobs.control.content import stat_files
from jobs.control.own_files import OwnFiles
from jobs.short_memory import NotAtHand

OWN = {"/": "ext4"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "ckpt" / "model"
    folder.mkdir(parents=True)
    for name in (".metadata", "__0_0.distcp"):
        (folder / name).write_text(name)
    return folder.parent


def test_a_file_and_a_folder_are_described_as_in_a_thread(checkpoint: Path) -> None:
    files = OwnFiles(lambda: OWN)
    (checkpoint / "model" / "x.unfinished").touch()
    (checkpoint / "empty").mkdir()
    for uri in (str(checkpoint), checkpoint.as_uri() + "/", str(checkpoint / "model" / ".metadata")):
        described = [
            [(file.key, file.size, file.version) for file in stat(uri)] for stat in (files.stat, stat_files)
        ]
        assert described[0] == described[1]


def test_what_is_no_file_is_left_to_a_thread(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OwnFiles(lambda: OWN)
    monkeypatch.chdir(checkpoint)
    (checkpoint / "empty").mkdir()
    for uri in (
        str(checkpoint / "none"),
        str(checkpoint / "empty"),
        "/",
        f"{checkpoint}/..",
        "model",
        "/dev/null",
    ):
        with pytest.raises(NotAtHand):
            files.stat(uri)


def test_a_place_behind_a_network_is_not_looked_at(checkpoint: Path) -> None:
    with pytest.raises(NotAtHand):
        OwnFiles(lambda: OWN).stat("s3://bucket/ckpt")
    with pytest.raises(NotAtHand):
        OwnFiles(lambda: {**OWN, str(checkpoint.parent): "nfs4"}).stat(str(checkpoint))


def test_a_folder_of_many_files_or_with_a_link_is_left_to_a_thread(checkpoint: Path) -> None:
    (checkpoint / "link").symlink_to("model")
    with pytest.raises(NotAtHand):
        OwnFiles(lambda: OWN).stat(str(checkpoint))
    (checkpoint / "link").unlink()
    for number in range(100):
        (checkpoint / "model" / f"__0_{number}.distcp").touch()
    with pytest.raises(NotAtHand):
        OwnFiles(lambda: OWN).stat(str(checkpoint))
