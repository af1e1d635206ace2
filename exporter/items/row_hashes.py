"""Hashes of item rows, by which vectors are recognised after they were written and read again."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exporter.items.vector_files import Vectors

Hashes = NDArray[np.uint64]
_SEED = 20260901


def hash_vectors(vectors: Vectors) -> Hashes:
    """Return a hash of each vector's bits: one changed bit, or two exchanged numbers, give another."""
    words = np.ascontiguousarray(vectors).view(np.uint32)
    random = np.random.default_rng(_SEED)
    drawn = random.integers(1, 1 << 63, size=(words.shape[1],), dtype=np.uint64)
    factors: Hashes = drawn * np.uint64(2) + np.uint64(1)
    hashes: Hashes = np.zeros(len(words), dtype=np.uint64)
    for place, factor in enumerate(factors):  # column by column: no copy of all in 64 bits
        hashes += words[:, place].astype(np.uint64) * factor
    return _mix(hashes)


def hash_items(ids: pa.Array, vectors: Vectors) -> Hashes:
    """Return a hash of each item's id and vector together; those of text are good in this process only."""
    if pa.types.is_integer(ids.type):
        keys = ids.to_numpy().astype(np.int64)
    else:
        keys = np.fromiter((hash(text) for text in ids.to_pylist()), dtype=np.int64, count=len(ids))
    return _mix(hash_vectors(vectors) ^ _mix(keys.view(np.uint64)))


def _mix(values: Hashes) -> Hashes:
    """Spread each bit over all, as splitmix64 does."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    spread: Hashes = mixed ^ (mixed >> np.uint64(31))
    return spread
