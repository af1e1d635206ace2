"""Which paths lie on disks of this machine, in a table of mounts that puts some of them elsewhere."""

from pathlib import Path

import pytest

from exporter.storage.own_disks import lies_on_own_disk, read_mounts


@pytest.fixture
def mounts(tmp_path: Path) -> dict[str, str]:
    for folder in ("disk", "far", "home"):
        (tmp_path / folder).mkdir()
    return {"/": "ext4", str(tmp_path / "disk"): "xfs", str(tmp_path / "far"): "nfs4"}


@pytest.mark.parametrize(
    ("path", "own"),
    [("disk/model", True), ("home", True), ("home/none/of/it", True), ("far", False), ("far/model", False)],
)
def test_a_path_is_judged_by_every_file_system_on_its_way(
    tmp_path: Path, mounts: dict[str, str], path: str, own: bool
) -> None:
    assert lies_on_own_disk(str(tmp_path / path), mounts) is own


@pytest.mark.parametrize(
    ("target", "own"),
    [("../far", False), ("../disk", True), ("{root}/far/model", False), ("{root}/disk/../far", False)],
)
def test_links_are_followed(tmp_path: Path, mounts: dict[str, str], target: str, own: bool) -> None:
    (tmp_path / "home" / "link").symlink_to(target.format(root=tmp_path))
    assert lies_on_own_disk(str(tmp_path / "home" / "link" / "model"), mounts) is own


def test_links_in_a_circle_end(tmp_path: Path, mounts: dict[str, str]) -> None:
    (tmp_path / "home" / "a").symlink_to("b")
    (tmp_path / "home" / "b").symlink_to("a")
    assert not lies_on_own_disk(str(tmp_path / "home" / "a"), mounts)


def test_a_folder_below_which_another_file_system_lies_does_not_count(
    tmp_path: Path, mounts: dict[str, str]
) -> None:
    assert not lies_on_own_disk(str(tmp_path), mounts)


def test_nothing_counts_where_the_mounts_are_not_known(tmp_path: Path) -> None:
    assert not lies_on_own_disk(str(tmp_path), {})


def test_the_mounts_of_this_machine_are_read() -> None:
    mounts = read_mounts()
    assert mounts["/proc"] == "proc"
    assert not lies_on_own_disk("/proc/self", mounts)
