"""Build a FAISS index over the item vectors in a child process: see `index_process`."""

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
from exporter.manifest import Metric
from exporter.options.index_spec import IndexSpec
from exporter.stages import Progress

_CHILD = "exporter.items.index_process"
_WAITING = "OMP_WAIT_POLICY=passive"  # idle threads sleep; spinning ones would take cores from others


class IndexRequest(BaseModel):
    """The request to the child, one line of JSON."""

    parts: tuple[Path, ...]  # parquet files of the vectors
    rows: int
    width: int
    index: IndexSpec  # without open parameters
    metric: Metric
    labels: Literal["item_ids", "row_numbers"]
    output: Path
    threads: int


class IndexResult(BaseModel):
    """Figures of the finished index."""

    trained_rows: int
    recall_at_10: float | None
    queries: int
    seconds: float
    peak_memory_bytes: int
    sha256: str  # of the file that was read back and checked
    parts_sha256: tuple[str, ...]  # of the files of vectors that it was checked against


class IndexReply(BaseModel):
    """One line of JSON from the child: its progress, or in the last line the result."""

    fraction: float = 1.0
    detail: str = ""
    built: IndexResult | None = None


def require_faiss() -> None:
    """Check that FAISS is installed.

    Raises:
        InvalidSpec: FAISS is not installed.
    """
    if find_spec("faiss") is None:
        raise InvalidSpec(
            "item_index needs FAISS, which is not installed on this worker",
            hint="install faiss-cpu on the worker, or leave item_index out",
            where="item_index",
        )


def build_index(request: IndexRequest, progress: Progress) -> IndexResult:
    """Build and measure the index, and write it to `request.output`.

    A child process does it because FAISS loads an OpenMP runtime of its own beside torch's, and because the
    kernel kills a process that builds an index too large for the machine.

    Raises:
        IndexFailed: the child ended without a result; the message has its last lines.
    """
    last_lines: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        ["env", _WAITING, sys.executable, "-P", "-m", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        listener = Thread(target=last_lines.extend, args=(process.stderr,), daemon=True)
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
            process.kill()  # the child has answered, or never will
            listener.join()
        raise IndexFailed(
            f"the process building the {request.index.kind} index of {request.rows:,} items ended with "
            f"status {process.wait()}: {' | '.join(line.rstrip() for line in last_lines)[-1000:]}"
        )


def _replies(stdout: IO[str]) -> Iterator[IndexReply]:
    for line in stdout:
        yield IndexReply.model_validate_json(line)
