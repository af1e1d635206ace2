"""The `.metadata` of distributed checkpoints with very many chunks, read in a process of its own.

One tensor is cut into a grid of chunks along both axes, which takes an attacker some ten megabytes; beside it
are checkpoints as TorchRec writes them, with many tables cut by row over many ranks.
"""

import argparse
import multiprocessing
import pickle
import resource
import sys
import tempfile
import time
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
_SECONDS = 300.0  # for one process


def write(path: Path, tables: int, down: int, across: int) -> None:
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


def read(path: Path, answers: "multiprocessing.Queue[tuple[str, float, int]]") -> None:
    """Read the metadata; report the result, the seconds of CPU, and the growth of this process in bytes."""
    before, begun = _peak(), time.process_time()
    try:
        ended = f"{sum(len(stored.chunks) for stored in read_metadata(path).values()):,} chunks"
    except CheckpointUnreadable as error:
        ended = f"refused: {error.message.removeprefix(str(path))[:80]}"
    answers.put((ended, time.process_time() - begun, _peak() - before))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    argparse.ArgumentParser(prog="python -m benchmarks.attacks.metadata", description=__doc__).parse_args()
    interrupt_on_end_signals()
    context = multiprocessing.get_context("fork")
    missed = False
    with tempfile.TemporaryDirectory(prefix="slipway-attack-") as folder:
        path = Path(folder) / ".metadata"
        for name, sizes in FILES.items():
            answers = context.Queue()
            writer = context.Process(target=write, args=(path, *sizes), daemon=True)
            reader = context.Process(target=read, args=(path, answers), daemon=True)
            for process in (writer, reader):
                process.start()
                process.join(_SECONDS)
                process.kill()
                process.join()
            ended, seconds, grown = ("no answer", _SECONDS, 0) if answers.empty() else answers.get()
            missed |= seconds > BOUND_S or grown > BOUND_MB << 20
            what = f"{name}, {path.stat().st_size:,} bytes ({ended})"
            figures = (
                f"{seconds:.1f} s of CPU (bound {BOUND_S:.0f} s), {grown >> 20:,} MB (bound {BOUND_MB:,} MB)"
            )
            sys.stdout.write(f"{what}: {figures}\n")
            sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
