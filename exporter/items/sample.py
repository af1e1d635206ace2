"""Draw random rows that are spread over all rows."""

import numpy as np
from numpy.typing import NDArray


def sample_places(total: int, count: int, *, seed: int) -> NDArray[np.int64]:
    """Draw at most `count` of `total` rows, in order: one at random from each of `count` equal ranges."""
    count = min(total, count)
    ends = np.arange(1, count + 1, dtype=np.int64) * total // count
    starts = np.append(0, ends[:-1])
    return np.random.default_rng(seed).integers(starts, ends, dtype=np.int64)
