"""The `.metadata` of distributed checkpoints with very many chunks, read in a process of its own.

One tensor is cut into a grid of chunks along both axes, which takes an attacker some ten megabytes; beside it
are checkpoints as TorchRec writes them, with many tables cut by row over many ranks.
"""

import argparse
import pickle
import sys
import tempfile
from functools import partial
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

from benchmarks.measure.bounds import Bounds
from benchmarks.measure.child_process import run_in_child
from exporter.checkpoint.dcp_metadata import read_metadata
from exporter.errors import CheckpointUnreadable
from processes.interrupts import interrupt_on_end_signals

BOUND_S = 20.0
BOUND_MB = 1024
# Tables, and the chunks of each along rows and columns.
FILES = {
    "a table of 400 x 400 chunks": (1, 400, 400),
    "a table of 600 x 600 chunks": (1, 600, 600),
    "200 tables by row over 100 ranks": (200, 100, 1),
    "500 tables by row over 256 ranks": (500, 256, 1),
}
_ROWS, _WIDTH = 10, 4  # of a chunk


def write(path: Path, tables: int, down: int, across: int) -> str:
    """Write the metadata of tables that are cut into `down` x `across` chunks each."""
    tensors: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    places = {}
    for table in range(tables):
        name = f"model.table_{table}"
        chunks = []
        for row in range(down):
            for column in range(across):
                offset = torch.Size([row * _ROWS, column * _WIDTH])
                chunks.append(ChunkStorageMetadata(offset, torch.Size([_ROWS, _WIDTH])))
                places[MetadataIndex(name, offset)] = _StorageInfo(f"__{row}_0.distcp", row * 1000, 1000)
        whole = torch.Size([down * _ROWS, across * _WIDTH])
        tensors[name] = TensorStorageMetadata(TensorProperties(torch.float32), whole, chunks)
    path.write_bytes(pickle.dumps(Metadata(tensors, {}, places)))
    return "written"


def read(path: Path) -> str:
    """Read the metadata, and return how that ended."""
    try:
        return f"{sum(len(stored.chunks) for stored in read_metadata(path).values()):,} chunks"
    except CheckpointUnreadable as error:
        return f"refused: {error.message.removeprefix(str(path))[:80]}"


def main() -> int:
    """Read every file, print the figures, and return 1 if a bound was missed."""
    argparse.ArgumentParser(prog="python -m benchmarks.attacks.metadata", description=__doc__).parse_args()
    interrupt_on_end_signals()
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="slipway-attack-") as folder:
        path = Path(folder) / ".metadata"
        for name, sizes in FILES.items():
            run_in_child(partial(write, path, *sizes))
            ended = run_in_child(partial(read, path))
            what = f"{name}, {path.stat().st_size:,} bytes ({ended.text})"
            bounds.check(f"{what}: s of CPU", ended.cpu_seconds, BOUND_S)
            bounds.check(f"{what}: MB", ended.grown / 1e6, BOUND_MB)
    return bounds.exit_status


if __name__ == "__main__":
    sys.exit(main())
