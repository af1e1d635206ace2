"""Has FAISS build an index over the item vectors, in a process of its own: see `index_process`."""

import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import IO, Literal

from pydantic import BaseModel

from exporter.errors import IndexFailed, InvalidSpec
from exporter.index_spec import IndexSpec
from exporter.manifest import Metric
from exporter.stages import Progress

_CHILD = "exporter.items.index_process"
_WAITING = "OMP_WAIT_POLICY=passive"  # idle threads sleep; spinning ones hold cores that others need


class IndexRequest(BaseModel):
    """The child's one line of input."""

    parts: tuple[Path, ...]  # the vectors
    rows: int
    width: int
    index: IndexSpec  # decided
    metric: Metric
    labels: Literal["item_ids", "row_numbers"]
    output: Path
    threads: int


class IndexResult(BaseModel):
    """What became of it."""

    trained_rows: int
    recall_at_10: float | None
    queries: int
    seconds: float
    peak_memory_bytes: int


class IndexReply(BaseModel):
    """A line of the child's output: how far it is, and at last the result."""

    fraction: float = 1.0
    detail: str = ""
    built: IndexResult | None = None


def require_faiss() -> None:
    """Refuse an index where there is nothing to build it with.

    Raises:
        InvalidSpec: FAISS is not installed here.
    """
    if find_spec("faiss") is None:
        raise InvalidSpec(
            "item_index needs FAISS, and this worker has none",
            hint="install faiss-cpu on the worker, or leave item_index out",
            where="item_index",
        )


def build_index(request: IndexRequest, progress: Progress) -> IndexResult:
    """Build and measure the index, and write it to `request.output`.

    FAISS brings an OpenMP runtime of its own beside torch's, and what is too large for the machine is
    killed by the kernel: in a process of its own neither touches the tower's.

    Raises:
        IndexFailed: the process ended without a result; with what it wrote last.
    """
    last_words: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        ["env", _WAITING, sys.executable, "-m", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        listener = Thread(target=last_words.extend, args=(process.stderr,), daemon=True)
        listener.start()
        try:
            process.stdin.write(request.model_dump_json() + "\n")
            process.stdin.close()
            for reply in _replies(process.stdout):
                progress(reply.fraction, reply.detail)
                if reply.built is not None:
                    return reply.built
        except BrokenPipeError:
            pass
        finally:
            process.kill()  # it has answered, or never will
            listener.join()
        raise IndexFailed(
            f"the process building the {request.index.kind} index of {request.rows:,} items ended with "
            f"status {process.wait()}: {' | '.join(line.rstrip() for line in last_words)[-1000:]}"
        )


def _replies(stdout: IO[str]) -> Iterator[IndexReply]:
    for line in stdout:
        yield IndexReply.model_validate_json(line)
