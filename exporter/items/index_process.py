"""The child process that builds a FAISS index over parquet files of vectors, without torch or the model.

`exporter.items.index` starts it. It reads one JSON request from stdin and writes JSON lines to stdout: its
progress, and in the last line the result.
"""

import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import faiss

from exporter.errors import IndexFailed
from exporter.items.index import IndexReply, IndexRequest, IndexResult
from exporter.items.index_check import require_same_items
from exporter.items.index_plan import PQ_CODES
from exporter.items.peak_memory import peak_bytes
from exporter.items.recall import measure_recall
from exporter.items.sample import sample_places
from exporter.items.vector_files import VectorRows, read_groups, read_rows
from exporter.manifest import Metric
from exporter.options.index_spec import FlatIndex, HnswIndex, IvfFlatIndex, IvfPqIndex

Report = Callable[[float, str], None]

_SEED = 20260901
_TRAINED_PER_LIST = 64  # training vectors per list; FAISS recommends 39 to 256
_TRAINED_MOST = 1 << 21  # training vectors, for any number of lists
_TRAINED, _ADDED = 0.375, 0.875  # progress, roughly, when training has ended, and when adding has


def main(requests: TextIO, replies: TextIO) -> None:
    request = IndexRequest.model_validate_json(requests.readline())

    def report(fraction: float, detail: str) -> None:
        _answer(replies, IndexReply(fraction=fraction, detail=detail))

    _answer(replies, IndexReply(built=build(request, report)))


def build(request: IndexRequest, report: Report) -> IndexResult:
    """Train on a sample, add every vector, write the index, read it back and measure its recall."""
    start = time.monotonic()
    faiss.omp_set_num_threads(request.threads)
    index = _create_index(request)
    trained_rows = _train(index, request, report)
    for group in read_groups(request.parts):
        _add(index, group, request)
        done = index.ntotal / request.rows
        report(_TRAINED + (_ADDED - _TRAINED) * done, f"index: {index.ntotal:,} of {request.rows:,} items")
    report(_ADDED, "index: written and read back")
    faiss.write_index(index, str(request.output))
    del index  # so that memory holds one index at a time
    index = faiss.read_index(str(request.output))
    if index.ntotal != request.rows:
        raise IndexFailed(f"the index holds {index.ntotal} vectors of {request.rows} items")
    require_same_items(index, request)
    report(_ADDED, "index: recall against exact search")
    recall = measure_recall(index, request, seed=_SEED)
    return IndexResult(
        trained_rows=trained_rows,
        recall_at_10=recall.share,
        queries=recall.queries,
        seconds=round(time.monotonic() - start, 3),
        peak_memory_bytes=peak_bytes(),
        sha256=_digest(request.output),
        parts_sha256=tuple(_digest(part) for part in request.parts),
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _create_index(request: IndexRequest) -> faiss.Index:
    metric = faiss.METRIC_L2 if request.metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT
    width = request.width
    match request.index:
        case FlatIndex():
            return _with_labels(faiss.IndexFlat(width, metric), request)
        case HnswIndex() as spec:
            graph = faiss.IndexHNSWFlat(width, spec.m, metric)
            graph.hnsw.efConstruction = spec.ef_construction
            graph.hnsw.efSearch = spec.ef_search
            return _with_labels(graph, request)
        case IvfFlatIndex(nlist=int(nlist), nprobe=nprobe):
            lists = faiss.IndexIVFFlat(faiss.IndexFlat(width, metric), width, nlist, metric)
            lists.nprobe = nprobe
            return lists
        case IvfPqIndex(nlist=int(nlist), nprobe=nprobe, m=int(m)):
            codes = faiss.IndexIVFPQ(faiss.IndexFlat(width, metric), width, nlist, m, 8, metric)
            codes.nprobe = nprobe
            return codes
        case _:
            raise AssertionError("the parent sets every parameter")


def _with_labels(index: faiss.Index, request: IndexRequest) -> faiss.Index:
    """Add a table of ids if vectors are labelled by them; otherwise FAISS numbers the vectors."""
    return faiss.IndexIDMap2(index) if request.labels == "item_ids" else index


def _train(index: faiss.Index, request: IndexRequest, report: Report) -> int:
    """Train the lists on a random sample of bounded size; return the number of its rows."""
    if index.is_trained:
        return 0
    assert isinstance(request.index, IvfFlatIndex | IvfPqIndex) and request.index.nlist is not None
    count = min(max(_TRAINED_PER_LIST * request.index.nlist, _TRAINED_PER_LIST * PQ_CODES), _TRAINED_MOST)
    sample = read_rows(request.parts, sample_places(request.rows, count, seed=_SEED)).vectors
    report(0.0, f"index: {request.index.nlist:,} lists from {len(sample):,} items")
    index.train(sample)
    return len(sample)


def _add(index: faiss.Index, rows: VectorRows, request: IndexRequest) -> None:
    if isinstance(index, faiss.IndexIDMap2 | faiss.IndexIVF):
        index.add_with_ids(rows.vectors, rows.labels(request.labels))
    else:
        index.add(rows.vectors)


def _answer(replies: TextIO, reply: IndexReply) -> None:
    replies.write(reply.model_dump_json() + "\n")
    replies.flush()


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
