"""Checkpoints to read: recorded ones, and ones made by hand with torch's own classes."""

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

Piece = tuple[tuple[int, ...], object]  # a chunk's offset, and what is saved as its content
Write = Callable[..., Path]


@pytest.fixture
def fixtures() -> Path:
    return Path(__file__).parents[2] / "fixtures" / "torcheasyrec"


@pytest.fixture
def write_dcp(tmp_path: Path) -> Write:
    """Writes a distributed checkpoint of chunks, each into a file of its own, and returns its folder."""

    def write(
        shape: Sequence[int],
        pieces: Sequence[Piece],
        *,
        name: str = "model.table",
        files: Mapping[int, str] | None = None,
        sizes: Mapping[int, tuple[int, ...]] | None = None,
    ) -> Path:
        folder = tmp_path / "model"
        folder.mkdir()
        chunks, places = [], {}
        for rank, (offset, content) in enumerate(pieces):
            file = f"__{rank}_0.distcp"
            data = saved(content)
            (folder / file).write_bytes(b"before" + data + b"after")
            size = content.shape if isinstance(content, Tensor) else (2, 2)
            chunks.append(ChunkStorageMetadata(torch.Size(offset), torch.Size((sizes or {}).get(rank, size))))
            places[MetadataIndex(name, offset)] = _StorageInfo((files or {}).get(rank, file), 6, len(data))
        tensor = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size(shape), chunks)
        (folder / ".metadata").write_bytes(pickle.dumps(Metadata({name: tensor}, {}, places)))
        return folder

    return write


def saved(content: object) -> bytes:
    if isinstance(content, bytes):
        return content
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()
