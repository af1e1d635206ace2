"""Distributed checkpoints that lie, run code or take all memory."""

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from exporter.checkpoint.dcp import DcpCheckpoint
from exporter.checkpoint.dcp_metadata import read_metadata
from exporter.checkpoint.read import open_checkpoint
from tests.hostile.kinds import CANARY, hostile

METADATA = "checkpoint .metadata"
CHUNK = "checkpoint chunk"
NAME = "model.table"


class Runs:
    """Pickled, it is a shell command that leaves the canary."""

    def __init__(self, folder: Path) -> None:
        self._command = f"touch {folder / CANARY}"

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self._command,)


def metadata_of(folder: Path, data: bytes) -> object:
    (folder / ".metadata").write_bytes(data)
    return read_metadata(folder / ".metadata")


def checkpoint(
    folder: Path,
    chunk: bytes,
    *,
    size: tuple[int, ...] = (2, 2),
    file: str = "__0_0.distcp",
    length: int | None = None,
) -> DcpCheckpoint:
    """One tensor in one chunk."""
    (folder / "__0_0.distcp").write_bytes(chunk)
    box = ChunkStorageMetadata(torch.Size([0] * len(size)), torch.Size([1]))
    box.sizes = size  # type: ignore[assignment] # torch.Size takes no number as large as these
    box.offsets = (0,) * len(size)  # type: ignore[assignment] # as above
    tensor = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size([1]), [box])
    tensor.size = size  # type: ignore[assignment] # as above
    place = _StorageInfo(file, 0, len(chunk) if length is None else length)
    metadata = Metadata({NAME: tensor}, {}, {MetadataIndex(NAME, (0,) * len(size)): place})
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    return DcpCheckpoint(folder)


def saved(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


@hostile("a pickle that runs a command", reader=METADATA)
def _(folder: Path) -> object:
    return metadata_of(folder, pickle.dumps(Runs(folder)))


@hostile("a command deep inside of real metadata", reader=METADATA)
def _(folder: Path) -> object:
    return metadata_of(
        folder, pickle.dumps(Metadata({}, planner_data=[{"a": Runs(folder)}], storage_data={}))
    )


@hostile("a foreign class", reader=METADATA)
def _(folder: Path) -> object:
    return metadata_of(folder, pickle.dumps(Metadata({NAME: torch.nn.Identity()}, storage_data={})))  # type: ignore[dict-item] # that is the attack


@hostile("attributes set on a class of torch", reader=METADATA)
def _(folder: Path) -> object:
    return metadata_of(folder, b"ctorch.distributed.checkpoint.metadata\nMetadata\n(N(S'changed'\nI1\ndtb.")


@hostile("a memo entry far out, for which memory is set aside", reader=METADATA)
def _(folder: Path) -> object:
    return metadata_of(folder, b"\x80\x02Nr" + struct.pack("<I", 0x7FFFFFFF) + b".")


@hostile("tuples of tuples whose hash takes for ever", reader=METADATA)
def _(folder: Path) -> object:
    doubled = b"".join(b"h%ch%c\x86q%c0" % (step, step, step + 1) for step in range(60))
    return metadata_of(folder, b"\x80\x02)q\x000" + doubled + b"}h<Ns.")


@hostile("tuples of tuples whose text takes for ever", reader=METADATA)
def _(folder: Path) -> object:
    laughs: object = ("ha",)
    for _ in range(18):  # within what a tuple may hold; its text would be half a megabyte, many times
        laughs = (laughs, laughs)
    laughs = [laughs, [laughs] * 99] * 99  # a list may hold more, as nothing takes its hash
    tensor = TensorStorageMetadata(TensorProperties(torch.float32), laughs, [])  # type: ignore[arg-type] # that is the attack
    return metadata_of(folder, pickle.dumps(Metadata({NAME: tensor}, {}, {})))


@hostile("a string of 2^62 bytes, announced", reader=METADATA)
def _(folder: Path) -> object:
    return metadata_of(folder, b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b".")


@hostile("a list nested 200,000 deep", reader=METADATA)
def _(folder: Path) -> object:
    return metadata_of(folder, b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".")


@hostile("bytes of no tensor, kept outside of the checkpoint", reader=METADATA, ends="unread")
def _(folder: Path) -> object:
    (folder / "outside").write_bytes(pickle.dumps(Runs(folder)))
    places = {MetadataIndex("step"): _StorageInfo("../outside", 0, 5)}
    return metadata_of(folder, pickle.dumps(Metadata({"step": BytesStorageMetadata()}, {}, places)))


@hostile("a chunk in a file outside of the checkpoint, by ../", reader=METADATA)
def _(folder: Path) -> object:
    return checkpoint(folder, saved(torch.ones(2, 2)), file="../0/__0_0.distcp").read(NAME)


@hostile("a file name with NUL", reader=METADATA)
def _(folder: Path) -> object:
    return checkpoint(folder, saved(torch.ones(2, 2)), file="__0\0_0.distcp").read(NAME)


@hostile("a tensor of 2^62 rows", reader=METADATA)
def _(folder: Path) -> object:
    return checkpoint(folder, saved(torch.ones(2, 2)), size=(1 << 62, 4)).read(NAME)


@hostile("a chunk of 2^62 bytes", reader=METADATA)
def _(folder: Path) -> object:
    return checkpoint(folder, saved(torch.ones(2, 2)), size=(1 << 61,), length=1 << 63).read(NAME)


@hostile("negative sizes that multiply to something", reader=METADATA)
def _(folder: Path) -> object:
    return checkpoint(folder, saved(torch.ones(2, 2)), size=(-2, -2)).read(NAME)


@hostile("a tensor's bytes that run a command", reader=CHUNK)
def _(folder: Path) -> object:
    return checkpoint(folder, saved([Runs(folder), torch.ones(2, 2)])).read(NAME)


@hostile("a tensor saved in the old way, by pickle alone", reader=CHUNK)
def _(folder: Path) -> object:
    return checkpoint(folder, pickle.dumps(Runs(folder))).read(NAME)


@hostile("a compressed chunk, larger than the file", reader=CHUNK)
def _(folder: Path) -> object:
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(saved(torch.zeros(1 << 20)))) as plain,
        zipfile.ZipFile(packed, "w") as bomb,
    ):
        for entry in plain.infolist():
            bomb.writestr(entry.filename, plain.read(entry), zipfile.ZIP_DEFLATED)
    return checkpoint(folder, packed.getvalue(), size=(1 << 20,)).read(NAME)


@hostile("values that lie in another entry of the chunk's zip", reader=CHUNK)
def _(folder: Path) -> object:
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(saved(torch.ones(2, 2)))) as plain,
        zipfile.ZipFile(packed, "w") as archive,
    ):
        for entry in plain.infolist():
            name = entry.filename.replace("/data/0", "/../data/0")
            archive.writestr(name, plain.read(entry), zipfile.ZIP_STORED)
            archive.writestr(f"{name}/data/1", b"x" * 16, zipfile.ZIP_STORED)
    return checkpoint(folder, packed.getvalue()).read(NAME)


@hostile("a pipe where a chunk should be, which never ends", reader=CHUNK)
def _(folder: Path) -> object:
    reader = checkpoint(folder, saved(torch.ones(2, 2)))
    (folder / "__0_0.distcp").unlink()
    os.mkfifo(folder / "__0_0.distcp")
    return reader.read(NAME)


@hostile("an endless device where .metadata should be", reader=METADATA)
def _(folder: Path) -> object:
    (folder / ".metadata").symlink_to("/dev/zero")
    return open_checkpoint(folder)
