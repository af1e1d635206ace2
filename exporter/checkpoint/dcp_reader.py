"""Read a part of a tensor from mapped chunks, with torch's own planner of distributed checkpoints.

The planner finds the parts of chunks that make up the requested part; nothing else of the files is read. Its
metadata is rebuilt from metadata that was read safely and describes nothing but tensors, so that the lines of
torch's planner that unpickle things never run.
"""

import os
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from exporter.checkpoint.dcp_metadata import Chunk, StoredTensor
from exporter.checkpoint.tensors import Piece

OpenChunk = Callable[[Chunk], Piece]


def fill_box(
    box: Tensor, offset: tuple[int, ...], name: str, stored: StoredTensor, open_chunk: OpenChunk
) -> None:
    """Fill `box` with the tensor's values of its shape that begin at `offset`, per axis."""
    reader = _MappedChunks(name, stored, open_chunk)
    planner = _BoxPlanner()
    planner.set_up_planner({name: _Box(stored, offset, box)}, reader.read_metadata())
    plan = planner.finish_plan(reader.prepare_local_plan(planner.create_local_plan()))
    reader.read_data(plan, planner).wait()


class _Box:
    """A part of a tensor, which presents itself to the planner as a shard of a sharded tensor."""

    def __init__(self, stored: StoredTensor, offset: tuple[int, ...], values: Tensor) -> None:
        self._shape, self._offset, self.values = stored.meta.shape, offset, values

    def size(self) -> torch.Size:
        return torch.Size(self._shape)

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(torch.Size(self._offset), self.values.size())]


class _BoxPlanner(DefaultLoadPlanner):
    """Torch's default planner, for flat state dicts that hold boxes."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def set_up_planner(
        self,
        state_dict: Mapping[str, object],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        self.state_dict, self.metadata, self.is_coordinator = dict(state_dict), metadata, is_coordinator

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        box = self.state_dict[index.fqn]
        assert isinstance(box, _Box)
        return box.values


class _MappedChunks(StorageReader):
    """Reads the chunks of one tensor where they are mapped."""

    def __init__(self, name: str, stored: StoredTensor, open_chunk: OpenChunk) -> None:
        self._name, self._stored, self._open = name, stored, open_chunk
        self._chunks = {chunk.offset: chunk for chunk in stored.chunks}

    def read_metadata(self) -> Metadata:
        chunks = [
            ChunkStorageMetadata(torch.Size(each.offset), torch.Size(each.size))
            for each in self._stored.chunks
        ]
        meta = self._stored.meta
        tensor = TensorStorageMetadata(TensorProperties(meta.dtype), torch.Size(meta.shape), chunks)
        return Metadata({self._name: tensor})

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            assert item.storage_index.offset is not None, "every chunk has a place"
            piece = self._open(self._chunks[tuple(item.storage_index.offset)])
            part = piece.part(item.storage_offsets, item.lengths)
            planner.resolve_tensor(item).view(torch.uint8).copy_(part)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a reader keeps no state between reads."""

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,
    ) -> None:
        """Do nothing: the reader has its own metadata."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """There is none."""
        return False
