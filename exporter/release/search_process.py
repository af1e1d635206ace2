"""The child process that searches a published FAISS index, without torch or the model.

`exporter.release.search` starts it. It reads one JSON request per line on stdin and answers each with one
JSON line on stdout. Where no index was published, it searches all vectors exactly.
"""

import sys
from pathlib import Path
from typing import TextIO

import faiss
import numpy as np
from pydantic import BaseModel

from exporter.items.vector_files import read_groups
from exporter.manifest import Metric


class SearchSetup(BaseModel):
    """The first line on stdin."""

    index: Path | None  # None: search `parts`, whose labels are then row numbers
    parts: tuple[Path, ...]
    width: int
    metric: Metric
    threads: int


class SearchRequest(BaseModel):
    """Search for the queries of a .npy file, one vector per line."""

    queries: Path
    k: int
    labels: Path  # where the labels go, nearest first; -1 stands for none
    scores: Path  # larger is nearer


class SearchReply(BaseModel):
    """The answer; `failed` says why there is none."""

    items: int = 0
    failed: str | None = None


def main(requests: TextIO, replies: TextIO) -> None:
    setup = SearchSetup.model_validate_json(requests.readline())
    faiss.omp_set_num_threads(setup.threads)
    try:
        index = _open(setup)
    except RuntimeError as error:
        _answer(replies, SearchReply(failed=_first_line(error)))
        return
    if index.d != setup.width:
        problem = f"the index holds vectors of width {index.d}, and the user tower gives {setup.width}"
        _answer(replies, SearchReply(failed=problem))
        return
    _answer(replies, SearchReply(items=index.ntotal))
    for line in requests:
        _search(index, SearchRequest.model_validate_json(line), setup.metric)
        _answer(replies, SearchReply(items=index.ntotal))


def _open(setup: SearchSetup) -> faiss.Index:
    if setup.index is not None:
        return faiss.read_index(str(setup.index))
    metric = faiss.METRIC_L2 if setup.metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexFlat(setup.width, metric)
    for group in read_groups(setup.parts):
        if group.vectors.shape[1] != setup.width:
            raise RuntimeError(
                f"the items have vectors of width {group.vectors.shape[1]}, and the user tower gives "
                f"{setup.width}"
            )
        index.add(np.ascontiguousarray(group.vectors))
    return index


def _search(index: faiss.Index, request: SearchRequest, metric: Metric) -> None:
    distances, labels = index.search(np.load(request.queries), request.k)
    np.save(request.labels, labels)
    np.save(request.scores, -distances if metric is Metric.L2 else distances)


def _first_line(error: Exception) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:500]


def _answer(replies: TextIO, reply: SearchReply) -> None:
    replies.write(reply.model_dump_json() + "\n")
    replies.flush()


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
