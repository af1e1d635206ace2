"""Sources that are surely not there are refused; what cannot be looked at is left to the attempt."""

import threading
import time
from pathlib import Path

import pytest

from exporter.errors import SourceNotFound, StorageError
from exporter.spec import ExportSpec
from exporter.storage.open import open_store
from exporter.storage.store import StoredFile
from jobs.control.content import stat_files
from jobs.control.sources import BoundedLook, remember, require_sources


def spec_of(**uris: str) -> ExportSpec:
    return ExportSpec.model_validate({"config": "", "checkpoint_uri": "x", "output_uri": "/none/out", **uris})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.parquet").write_bytes(b"rows")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "a.parquet").symlink_to(tmp_path / "rows.parquet")
    return tmp_path


@pytest.mark.parametrize("field", ["checkpoint_uri", "item_input_uri", "sample_input_uri", "assets_uri"])
@pytest.mark.parametrize("form", ["{}/none", "file://{}/none"])
def test_what_is_missing_among_other_files_is_named(folder: Path, field: str, form: str) -> None:
    with pytest.raises(SourceNotFound, match="and nothing is there") as refused:
        require_sources(spec_of(**{field: form.format(folder)}), stat_files)
    assert refused.value.where == field


def test_each_of_several_rows_is_looked_at(folder: Path) -> None:
    require_sources(spec_of(sample_input_uri=f"{folder}/rows.parquet,{folder}/linked"), stat_files)
    with pytest.raises(SourceNotFound, match="later.parquet"):
        require_sources(spec_of(sample_input_uri=f"{folder}/rows.parquet,{folder}/later.parquet"), stat_files)


@pytest.mark.parametrize(
    "path", ["*.parquet", "empty/rows.parquet", "not-mounted/rows.parquet", "linked", "rows.parquet"]
)
def test_what_is_there_or_cannot_be_seen_from_here_is_accepted(folder: Path, path: str) -> None:
    (folder / "empty").mkdir()
    require_sources(spec_of(sample_input_uri=f"{folder}/{path}"), stat_files)


@pytest.mark.parametrize("path", ["rows.parquet", "/rows-of-another-machine.parquet"])
def test_a_path_that_means_another_place_elsewhere_is_accepted(
    folder: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "linked")
    require_sources(spec_of(sample_input_uri=path), stat_files)


def test_a_bucket_says_what_is_missing(s3_uri: str) -> None:
    open_store(s3_uri).put_bytes(b"weights", "ckpt/model.safetensors")
    require_sources(spec_of(checkpoint_uri=f"{s3_uri}/ckpt"), stat_files)
    with pytest.raises(SourceNotFound, match="checkpoint_uri names s3://"):
        require_sources(spec_of(checkpoint_uri=f"{s3_uri}/ckpt-2"), stat_files)


def test_a_store_that_refuses_is_left_to_the_attempt() -> None:
    def refuse(uri: str) -> tuple[StoredFile, ...]:
        raise StorageError(f"{uri}: access denied")

    require_sources(spec_of(checkpoint_uri="s3://of-others/ckpt"), refuse)


def test_a_store_that_does_not_answer_is_given_up(folder: Path) -> None:
    hanging = threading.Event()

    def hang(uri: str) -> tuple[StoredFile, ...]:
        hanging.wait(30)
        return ()

    begun = time.monotonic()
    with pytest.raises(StorageError, match="not found out about within"):
        BoundedLook(hang, seconds=0.1)("s3://bucket/ckpt")
    assert time.monotonic() - begun < 10
    hanging.set()
    found = BoundedLook(stat_files)(f"{folder}/rows.parquet")
    assert [each.size for each in found] == [4]
    with pytest.raises(SourceNotFound):
        BoundedLook(stat_files)(f"{folder}/none")


def test_a_source_is_asked_for_once(folder: Path) -> None:
    asked: list[str] = []

    def ask(uri: str) -> tuple[StoredFile, ...]:
        asked.append(uri)
        return stat_files(uri)

    look = remember(ask)
    for _ in range(2):
        assert look(f"{folder}/rows.parquet")
        with pytest.raises(SourceNotFound):
            look(f"{folder}/none")
    assert asked == [f"{folder}/rows.parquet", f"{folder}/none"]


def test_a_request_that_names_a_great_many_sources_is_looked_at_in_part(folder: Path) -> None:
    looked: list[str] = []

    def look(uri: str) -> tuple[StoredFile, ...]:
        looked.append(uri)
        return stat_files(str(folder / "rows.parquet"))

    uris = ",".join(f"/rows/{number}" for number in range(300))
    require_sources(spec_of(sample_input_uri=uris), look)
    assert 10 < len(looked) < 20
