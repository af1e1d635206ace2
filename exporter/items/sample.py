"""Random rows, spread over all of them."""

import numpy as np
from numpy.typing import NDArray


def sample_places(total: int, count: int, *, seed: int) -> NDArray[np.int64]:
    """At most `count` of `total` places, in order: one at random from each of as many equal stretches."""
    count = min(total, count)
    ends = np.arange(1, count + 1, dtype=np.int64) * total // count
    starts = np.append(0, ends[:-1])
    return np.random.default_rng(seed).integers(starts, ends, dtype=np.int64)
