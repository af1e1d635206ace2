"""Measure the recall of an index against exact search over all vectors, with items as queries.

Shapes: Q queries, K neighbours, D width.
"""

from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray

from exporter.items.index import IndexRequest
from exporter.items.sample import sample_places
from exporter.items.vector_files import Labels, Vectors, read_groups, read_rows
from exporter.manifest import Metric

_QUERIES = 512
_NEIGHBOURS = 10
_TIE = 1e-6  # scores are equal if they differ by less than this fraction of the query's squared norm

Scores = NDArray[np.float32]  # larger is nearer


@dataclass(frozen=True, kw_only=True)
class Recall:
    """The share of the queries' nearest neighbours that was found; None if there are too few items."""

    share: float | None
    queries: int


def measure_recall(index: faiss.Index, request: IndexRequest, *, seed: int) -> Recall:
    """Search for a random sample of the items; an item does not count in its own result.

    Items that the index returns are scored by their true vectors, as in exact search: ties count as found,
    and the rounding of coded vectors has no effect. The vectors are read once, in memory that does not grow
    with their number.
    """
    if request.rows <= _NEIGHBOURS:
        return Recall(share=None, queries=0)
    queries = read_rows(request.parts, sample_places(request.rows, _QUERIES, seed=seed))
    own_Q = queries.labels(request.labels)
    _, returned_QK = index.search(queries.vectors, _NEIGHBOURS + 1)
    returned_QK = _drop_own(returned_QK, own_Q)
    returned = np.unique(returned_QK)
    returned_vectors: Vectors = np.full((len(returned), request.width), np.nan, dtype=np.float32)
    best_QK: Scores = np.full((len(own_Q), _NEIGHBOURS), -np.inf, dtype=np.float32)
    for group in read_groups(request.parts):
        labels = group.labels(request.labels)
        best_QK = _merge_best(
            best_QK, *_search_group(queries.vectors, group.vectors, request.metric), labels, own_Q
        )
        place = np.minimum(np.searchsorted(returned, labels), len(returned) - 1)
        here = returned[place] == labels
        returned_vectors[place[here]] = group.vectors[here]
    returned_QKD = returned_vectors[np.searchsorted(returned, returned_QK)]
    scores_QK = _scores(queries.vectors, returned_QKD, request.metric)
    tie_Q = _TIE * (queries.vectors**2).sum(axis=1)
    found = (
        scores_QK >= (best_QK[:, -1] - tie_Q)[:, None]
    )  # of what does not exist the score is NaN: not found
    return Recall(share=float(found.mean()), queries=len(own_Q))


def _drop_own(returned_QK: Labels, own_Q: Labels) -> Labels:
    """Return the first neighbours other than the query itself; -1 stands for none, as in FAISS."""
    order = np.argsort(returned_QK == own_Q[:, None], axis=1, kind="stable")
    others: Labels = np.take_along_axis(returned_QK, order, axis=1)[:, :_NEIGHBOURS]
    return others


def _search_group(queries: Vectors, vectors: Vectors, metric: Metric) -> tuple[Scores, Labels]:
    """Search one group exactly, for one neighbour more, as the query itself may be among them."""
    kind = faiss.METRIC_L2 if metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT
    count = min(_NEIGHBOURS + 1, len(vectors))
    distances, places = faiss.knn(queries, vectors, count, metric=kind)
    return (-distances if metric is Metric.L2 else distances), places


def _merge_best(
    best_QK: Scores, scores_QK: Scores, places_QK: Labels, labels: Labels, own_Q: Labels
) -> Scores:
    """Merge the best scores so far with those of a group, without the queries themselves."""
    own = labels[places_QK] == own_Q[:, None]
    both = np.concatenate([best_QK, np.where(own, -np.inf, scores_QK)], axis=1)
    best: Scores = -np.sort(-both, axis=1)[:, :_NEIGHBOURS]
    return best


def _scores(queries_QD: Vectors, vectors_QKD: Vectors, metric: Metric) -> Scores:
    if metric is Metric.L2:
        squares: Scores = -((vectors_QKD - queries_QD[:, None]) ** 2).sum(axis=2)
        return squares
    products: Scores = np.einsum("qkd,qd->qk", vectors_QKD, queries_QD)
    return products
