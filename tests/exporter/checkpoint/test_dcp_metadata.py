"""A stranger's `.metadata`: nothing in it runs, and what contradicts itself is named."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex

from exporter.checkpoint import dcp_metadata
from exporter.checkpoint.dcp import DcpCheckpoint
from exporter.checkpoint.dcp_metadata import read_metadata
from exporter.errors import CheckpointUnreadable

Write = Callable[..., Path]


class Runs:
    """Pickled, it is a shell command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


@pytest.fixture
def bomb(tmp_path: Path) -> Runs:
    return Runs(f"touch {tmp_path / 'it_ran'}")


def refused(tmp_path: Path, data: bytes, match: str) -> None:
    (tmp_path / ".metadata").write_bytes(data)
    with pytest.raises(CheckpointUnreadable, match=match):
        read_metadata(tmp_path / ".metadata")
    assert not (tmp_path / "it_ran").exists()


def test_the_bomb_of_these_tests_is_a_real_one(tmp_path: Path, bomb: Runs) -> None:
    pickle.loads(pickle.dumps(bomb))
    assert (tmp_path / "it_ran").exists()


def test_a_metadata_file_runs_nothing(tmp_path: Path, bomb: Runs) -> None:
    refused(tmp_path, pickle.dumps(bomb), r"\.metadata asks for (posix|nt)\.system")


def test_nothing_runs_from_inside_of_real_metadata(tmp_path: Path, bomb: Runs) -> None:
    refused(tmp_path, pickle.dumps(Metadata({}, planner_data=bomb, storage_data={})), "system")


@pytest.mark.parametrize("foreign", [Path("x"), torch.nn.Identity(), MetadataIndex, 1 + 2j])
def test_a_foreign_class_is_named(foreign: object, tmp_path: Path) -> None:
    data = pickle.dumps(Metadata({"model.a": foreign}, storage_data={}))  # type: ignore[dict-item]  # that is the test
    refused(tmp_path, data, "asks for|TypeError")


@pytest.mark.parametrize(
    "name",
    [
        "builtins eval",
        "torch load",
        "torch.distributed.checkpoint.metadata os",
        "torch.serialization _get_layout.cache",
    ],
)
def test_only_whole_admitted_names_are_found(name: str, tmp_path: Path) -> None:
    module, attribute = name.split()
    refused(tmp_path, f"c{module}\n{attribute}\n.".encode(), "asks for")


def test_a_pickle_cannot_change_torchs_classes(tmp_path: Path) -> None:
    index = b"ctorch.distributed.checkpoint.metadata\nMetadata\n"
    set_attribute = index + b"(N(S'changed'\nI1\ndtb."  # BUILD with (None, {"changed": 1}) sets attributes
    refused(tmp_path, set_attribute, "does not describe")
    assert not hasattr(Metadata, "changed")


@pytest.mark.parametrize("data", [b"", b"not a pickle", pickle.dumps({"a": 1}), pickle.dumps([None] * 3)])
def test_what_is_no_metadata_is_refused(data: bytes, tmp_path: Path) -> None:
    refused(tmp_path, data, "does not describe a distributed checkpoint")


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp_metadata, "MAX_METADATA_BYTES", 10)
    refused(tmp_path, bytes(11), "more than 10 bytes")


def test_entries_that_are_no_tensors_are_left_out_unread(tmp_path: Path) -> None:
    places = {MetadataIndex("step"): _StorageInfo("../../anything", 0, 5)}
    metadata = Metadata({"step": BytesStorageMetadata()}, storage_data=places)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    assert read_metadata(tmp_path / ".metadata") == {}


def test_a_chunk_that_runs_code_is_refused(tmp_path: Path, bomb: Runs, write_dcp: Write) -> None:
    checkpoint = DcpCheckpoint(write_dcp((2, 2), [((0, 0), [bomb, torch.ones(2, 2)])]))
    with pytest.raises(CheckpointUnreadable, match=r"__0_0.distcp: tensor model.table"):
        checkpoint.read("model.table")
    assert not (tmp_path / "it_ran").exists()


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", "a/b", "..", "", "a\0b"])
def test_a_path_out_of_the_checkpoint_is_refused(file: str, write_dcp: Write) -> None:
    folder = write_dcp((2, 2), [((0, 0), torch.ones(2, 2))], files={0: file})
    with pytest.raises(CheckpointUnreadable, match=r"\.metadata: tensor model.table points at"):
        read_metadata(folder / ".metadata")


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        ([(0, 0), (1, 0)], "overlap"),
        ([(0, 0), (2, 0), (2, 0)], "overlap"),
        ([(0, 0)], "gap"),
        ([(0, 0), (2, 0)], "gap"),
        ([(0, 0), (3, 0)], "ends at"),
        ([(0, 0), (0, 1)], "ends at"),
    ],
)
def test_chunks_that_do_not_tile_the_tensor_are_refused(
    offsets: list[tuple[int, int]], reason: str, write_dcp: Write
) -> None:
    folder = write_dcp((4, 2) if reason != "gap" else (6, 2), [(at, torch.ones(2, 2)) for at in offsets])
    with pytest.raises(CheckpointUnreadable, match=f"tensor model.table .*{reason}"):
        read_metadata(folder / ".metadata")


def test_a_chunk_that_no_file_holds_is_refused(write_dcp: Write) -> None:
    folder = write_dcp((2, 2), [((0, 0), torch.ones(2, 2))])
    metadata: Metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.storage_data = {}
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointUnreadable, match=r"tensor model.table has a chunk .* that no file holds"):
        read_metadata(folder / ".metadata")
