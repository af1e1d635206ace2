"""The child process that searches a published FAISS index, without torch or the model.

`exporter.release.search` starts it. It reads one JSON request per line on stdin and answers each with one
JSON line on stdout. Where no index was published, it searches all vectors exactly.
"""

import sys
from typing import TextIO

import faiss
import numpy as np

from exporter.items.vector_files import read_groups
from exporter.manifest import Metric
from exporter.release.search_messages import SearchReply, SearchRequest, SearchSetup


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
