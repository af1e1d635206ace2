"""The data is fetched once; without a network the error says what is missing."""

import zipfile
from pathlib import Path

import pytest

from examples.movielens.download import FILES, DownloadFailed, download, unpack


def test_what_was_fetched_before_is_found(tmp_path: Path) -> None:
    (tmp_path / "ml-100k").mkdir()
    for name in FILES:
        (tmp_path / "ml-100k" / name).touch()
    assert download(tmp_path) == tmp_path / "ml-100k"


def test_being_offline_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(DownloadFailed, match="pip could not fetch"):
        download(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_without_the_data_is_said(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "recbole.whl", "w") as wheel:
        wheel.writestr("recbole/__init__.py", "")
    with pytest.raises(DownloadFailed, match=r"has no .*ml-100k.inter"):
        unpack(tmp_path / "recbole.whl", tmp_path / "out")
