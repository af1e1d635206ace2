"""Check a finished index against the files of vectors: every item's label, and the vector under it."""

from collections.abc import Iterator

import faiss
import numpy as np
from numpy.typing import NDArray

from exporter.errors import IndexFailed
from exporter.items.index import IndexRequest
from exporter.items.row_hashes import Hashes, hash_vectors
from exporter.items.sample import sample_places
from exporter.items.vector_files import Labels, Vectors, read_groups, read_rows

_ROWS = 1 << 16
_CODED_ROWS = 1 << 14  # whose codes are compared, where vectors are coded
_WORSE = 1.05  # times as far from its vector as the code that is computed again: rounding decides near ties
_SEED = 20260901


def require_same_items(index: faiss.Index, request: IndexRequest) -> None:
    """Check that the index holds each item once, under its label, with the vector of the files.

    Coded vectors (ivf_pq) are compared for a sample: the code must be as near as the one computed again.

    Raises:
        IndexFailed: naming the item.
    """
    held = _Held(index)
    for group in read_groups(request.parts):
        held.require(group.labels(request.labels), None if held.is_coded else group.vectors)
    coded = _inner(index)
    if isinstance(coded, faiss.IndexIVFPQ):
        rows = read_rows(request.parts, sample_places(request.rows, _CODED_ROWS, seed=_SEED))
        _require_near(coded, rows.labels(request.labels), rows.vectors)


class _Held:
    """The labels that an index holds, ascending, and the hashes of their vectors."""

    def __init__(self, index: faiss.Index) -> None:
        self.is_coded = isinstance(_inner(index), faiss.IndexIVFPQ)
        labels, hashes = zip(*_items(index, is_coded=self.is_coded), strict=True)
        unsorted: Labels = np.concatenate(labels)
        order = np.argsort(unsorted, kind="stable")
        self._labels = unsorted[order]
        self._hashes: Hashes = np.concatenate(hashes)[order]
        again = np.flatnonzero(self._labels[1:] == self._labels[:-1])
        if len(again):
            raise IndexFailed(f"the index holds item {self._labels[again[0]]} more than once")

    def require(self, labels: Labels, vectors: Vectors | None) -> None:
        """Raise IndexFailed unless each label is there, with the vector if there is one."""
        place = np.minimum(np.searchsorted(self._labels, labels), len(self._labels) - 1)
        if len(missing := np.flatnonzero(self._labels[place] != labels)):
            raise IndexFailed(f"the index does not hold item {labels[missing[0]]} of the files of vectors")
        if vectors is None:
            return
        if len(wrong := np.flatnonzero(self._hashes[place] != hash_vectors(vectors))):
            raise IndexFailed(
                f"the index holds another vector of item {labels[wrong[0]]} than the files of vectors",
                hint="nothing of the tower was published; report it with the log",
            )


def _items(index: faiss.Index, *, is_coded: bool) -> Iterator[tuple[Labels, Hashes]]:
    """Yield labels and hashes of all items, in any order; no hashes of coded vectors."""
    inner = _inner(index)
    if isinstance(inner, faiss.IndexIVF):
        for number in range(inner.nlist):
            labels, codes = _read_list(inner, number)
            yield labels, labels.view(np.uint64) if is_coded else hash_vectors(codes.view(np.float32))
        return
    own: Labels = np.arange(index.ntotal, dtype=np.int64)
    if isinstance(index, faiss.IndexIDMap2):
        own = faiss.vector_to_array(index.id_map)
    for first in range(0, index.ntotal, _ROWS):
        count = min(_ROWS, index.ntotal - first)
        yield own[first : first + count], hash_vectors(inner.reconstruct_n(first, count))


def _read_list(index: faiss.IndexIVF, number: int) -> tuple[Labels, NDArray[np.uint8]]:
    """Return copies of the labels and the codes of one list, a row each."""
    lists = index.invlists
    assert lists is not None, "an index of lists has lists"
    count, width = lists.list_size(number), lists.code_size
    if not count:
        return np.empty(0, dtype=np.int64), np.empty((0, width), dtype=np.uint8)
    labels = faiss.rev_swig_ptr(lists.get_ids(number), count).copy()
    codes = faiss.rev_swig_ptr(lists.get_codes(number), count * width).reshape(count, width).copy()
    return labels, codes


def _require_near(index: faiss.IndexIVFPQ, labels: Labels, vectors: Vectors) -> None:
    """Raise IndexFailed if a stored code is farther from its vector than the code that is computed now."""
    order = np.argsort(labels, kind="stable")
    labels, vectors = labels[order], vectors[order]
    head = index.coarse_code_size()  # type: ignore[attr-defined]  # its stubs lack it
    stored = np.zeros((len(labels), index.sa_code_size()), dtype=np.uint8)
    for number in range(index.nlist):
        found, codes = _read_list(index, number)
        place = np.minimum(np.searchsorted(labels, found), len(labels) - 1)
        here = labels[place] == found
        stored[place[here], :head] = np.frombuffer(number.to_bytes(head, "little"), dtype=np.uint8)
        stored[place[here], head:] = codes[here]
    distances = [
        np.linalg.norm(vectors - index.sa_decode(codes), axis=1)
        for codes in (stored, index.sa_encode(vectors))
    ]
    allowed = _WORSE * distances[1] + 1e-5 * np.linalg.norm(vectors, axis=1)
    if len(wrong := np.flatnonzero(distances[0] > allowed)):
        raise IndexFailed(
            f"the index holds a code of item {labels[wrong[0]]} that is not of its vector in the files"
        )


def _inner(index: faiss.Index) -> faiss.Index:
    return faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap2) else index
