"""Distributed checkpoints as several ranks write them: each rank's rows are a chunk in a file of its own."""

import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)


def write_ranks(folder: Path, tensors: Mapping[str, Sequence[Tensor]]) -> Path:
    """Write tensors, each given as the rows of rank 0, of rank 1, …, and return the folder."""
    folder.mkdir(parents=True)
    described: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    places = {}
    ranks: dict[int, bytes] = {}
    for name, parts in tensors.items():
        boxes, first = [], 0
        for rank, part in enumerate(parts):
            offset = torch.Size([first, *(0 for _ in part.shape[1:])])
            data, written = _saved(part), ranks.get(rank, b"")
            places[MetadataIndex(name, offset)] = _StorageInfo(f"__{rank}_0.distcp", len(written), len(data))
            ranks[rank] = written + data
            boxes.append(ChunkStorageMetadata(offset, part.shape))
            first += len(part)
        shape = torch.Size([first, *parts[0].shape[1:]])
        described[name] = TensorStorageMetadata(TensorProperties(parts[0].dtype), shape, boxes)
    for rank, data in ranks.items():
        (folder / f"__{rank}_0.distcp").write_bytes(data)
    (folder / ".metadata").write_bytes(pickle.dumps(Metadata(described, {}, places)))
    return folder


def _saved(tensor: Tensor) -> bytes:
    buffer = io.BytesIO()
    torch.save(tensor.clone(), buffer)
    return buffer.getvalue()
