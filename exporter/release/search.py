"""The published items of a release, searched by its users' vectors as a server would.

B rows, K neighbours, D width, I interests of one user.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from exporter.errors import InvalidArtifact, InvalidRows
from exporter.items.index import require_faiss
from exporter.items.vector_files import Vectors
from exporter.manifest import Metric
from exporter.release.search_messages import SearchReply, SearchRequest, SearchSetup
from exporter.verify.runner_process import RunnerProcess

_CHILD = "exporter.release.search_process"
_LIMIT_S = 900.0
_THREADS = 1  # of each release's search; two wait for each other longer than they search
_MOST_PRODUCTS = 5e9  # of queries with items, where every item is compared with every query

Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PublishedItems:
    """Files of item vectors, and of the index over them where there is one."""

    parts: tuple[Path, ...]
    id_column: str
    index: Path | None
    labels_are_ids: bool  # the index returns item ids; otherwise row numbers over all files
    metric: Metric
    exact: bool  # a search compares the query with every item

    def read_ids(self) -> pa.Array:
        """Return the ids of all items, in the order of the files."""
        tables = [pq.read_table(part, columns=[self.id_column]) for part in self.parts]
        chunks = [chunk for table in tables for chunk in table.column(0).chunks]
        return pa.concat_arrays(chunks)


class ItemSearch:
    """A search among the items of a release, in a process of its own; a context manager."""

    def __init__(self, items: PublishedItems, width: int, scratch: Path) -> None:
        """Prepare to search among `items` for vectors of `width` numbers."""
        require_faiss()
        self._items = items
        self._setup = SearchSetup(
            index=items.index, parts=items.parts, width=width, metric=items.metric, threads=_THREADS
        )
        self._scratch = scratch

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._process = starting.enter_context(RunnerProcess(self._scratch, program=_CHILD))
            self._places = Places(self._items.read_ids())
            self.items = self._ask(self._setup).items
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    @property
    def most_queries(self) -> int:
        """The number of queries that a search of every item allows in seconds."""
        return int(max(1000, _MOST_PRODUCTS / max(1, self.items))) if self._items.exact else 1 << 62

    def find(self, vectors: Vectors, k: int) -> Labels:
        """Return the row numbers of the K items nearest to each user, (B, K); -1 stands for none.

        A user with several interests, (B, I, D), gets the nearest to any of them.
        """
        interests = vectors.shape[1] if vectors.ndim == 3 else 1
        queries: Vectors = vectors.reshape(-1, vectors.shape[-1]).astype(np.float32)
        if self._items.metric is Metric.COSINE:
            norms = np.linalg.norm(queries, axis=1, keepdims=True)
            queries /= np.where(norms > 0, norms, np.float32(1))
        folder = self._process.folder
        request = SearchRequest(
            queries=folder / "queries.npy",
            k=min(k, self.items),
            labels=folder / "labels.npy",
            scores=folder / "scores.npy",
        )
        np.save(request.queries, queries)
        self._ask(request)
        labels, scores = np.load(request.labels), np.load(request.scores)
        if interests > 1:
            labels = _merge(labels.reshape(len(vectors), -1), scores.reshape(len(vectors), -1), request.k)
        return self._to_rows(labels)

    def rows_of(self, ids: pa.Array) -> Labels:
        """Return the row numbers of items by their ids; -1 of those that were not published."""
        return self._places.find(ids)

    def _to_rows(self, labels: Labels) -> Labels:
        if not self._items.labels_are_ids:
            return labels
        return self._places.find(pa.array(labels.reshape(-1))).reshape(labels.shape)

    def _ask(self, request: SearchSetup | SearchRequest) -> SearchReply:
        reply = self._process.exchange(request, SearchReply, limit_s=_LIMIT_S)
        if reply.failed is not None:
            raise InvalidArtifact(f"the item index cannot be searched: {reply.failed}")
        return reply


class Places:
    """The row number of each item, by its id."""

    def __init__(self, ids: pa.Array) -> None:
        """Take the ids of all items, integers or texts, in the order of their rows."""
        self._numbers: Labels | None = None
        if pa.types.is_integer(ids.type):
            numbers = ids.to_numpy().astype(np.int64)
            self._order = np.argsort(numbers, kind="stable")
            self._numbers = numbers[self._order]
        else:
            self._texts = {text: row for row, text in enumerate(ids.to_pylist())}

    def find(self, ids: pa.Array) -> Labels:
        """Return the row number of each id, -1 where there is none.

        Raises:
            InvalidRows: the ids are of a type that the items' are not.
        """
        kind = pa.string() if self._numbers is None else pa.int64()
        try:
            ids = ids.cast(kind)
        except pa.ArrowException as error:
            raise InvalidRows(
                f"the chosen items are of type {ids.type}, and items are published by ids of type {kind}: "
                f"{str(error)[:200]}",
                hint="name the column of the chosen items' ids in release_gate.item_column",
                where="release_gate.item_column",
            ) from error
        if self._numbers is None:
            texts = ids.to_pylist()
            return np.fromiter((self._texts.get(text, -1) for text in texts), dtype=np.int64, count=len(ids))
        wanted = pc.fill_null(ids, -1).to_numpy()
        at = np.minimum(np.searchsorted(self._numbers, wanted), len(self._numbers) - 1)
        found: Labels = np.where(self._numbers[at] == wanted, self._order[at], -1)
        return found


def _merge(labels_BN: Labels, scores_BN: NDArray[np.float32], k: int) -> Labels:
    """Return the K best labels of each row, each once."""
    merged = np.full((len(labels_BN), k), -1, dtype=np.int64)
    order_BN = np.argsort(-scores_BN, axis=1, kind="stable")
    for row, order in enumerate(order_BN):
        best = dict.fromkeys(label for label in labels_BN[row][order].tolist() if label >= 0)
        chosen = list(best)[:k]
        merged[row, : len(chosen)] = chosen
    return merged


def hits_and_gains(
    found_BK: Labels, wanted: Sequence[Labels], cut_offs: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each row and cut-off whether a wanted item is among the first, and its NDCG.

    Items count as relevant or not; the discount of the item at place n, from 1, is 1 / log2(n + 1), and the
    ideal list begins with all wanted items.
    """
    discounts = 1 / np.log2(np.arange(2, found_BK.shape[1] + 2))
    hits, gains = np.zeros((2, len(found_BK), len(cut_offs)))
    widest = max((len(items) for items in wanted), default=0)
    wanted_BW = np.full((len(found_BK), max(1, widest)), -2, dtype=np.int64)
    for row, items in enumerate(wanted):
        wanted_BW[row, : len(items)] = items
    counts = np.array([len(items) for items in wanted])
    relevant_BK = (found_BK[:, :, None] == wanted_BW[:, None, :]).any(axis=2) & (found_BK >= 0)
    for place, k in enumerate(cut_offs):
        hits[:, place] = relevant_BK[:, :k].any(axis=1)
        most = discounts[:k]
        ideal = np.r_[0.0, np.cumsum(most)][np.minimum(counts, len(most))]
        gained = (relevant_BK[:, :k] * most).sum(axis=1)
        gains[:, place] = np.where(ideal > 0, gained / np.where(ideal > 0, ideal, 1), 0.0)
    return hits, gains
