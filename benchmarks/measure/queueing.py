"""Queues with several workers: the waits of jobs that arrive at given times, first come, first served.

J jobs, W workers; all times are seconds.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Load:
    """Jobs of one queue: when each arrives, ascending, and how long it keeps a worker."""

    arrivals: Seconds  # [J]
    services: Seconds  # [J]

    @property
    def busy(self) -> float:
        """The workers that are busy on average while jobs arrive, if there are enough."""
        span = float(self.arrivals[-1] - self.arrivals[0])
        return float(self.services.sum()) / max(span, float(self.services.mean()), 1e-9)


def find_waits(load: Load, workers: int) -> Seconds:
    """Return how long each job waits for one of the workers, `[J]`."""
    free = [0.0] * workers  # a heap of the times at which workers are free
    waits = np.empty(len(load.arrivals))
    for number, (arrival, service) in enumerate(zip(load.arrivals, load.services, strict=True)):
        begins = max(float(arrival), free[0])
        heapq.heapreplace(free, begins + float(service))
        waits[number] = begins - arrival
    return waits


def fewest_workers(load: Load, *, share: float, within_s: float) -> int:
    """Return the fewest workers with which a `share` of the jobs waits `within_s` at most."""
    low, high = 1, max(1, int(load.busy) + 1)
    while not _is_enough(load, high, share, within_s):
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        if _is_enough(load, middle, share, within_s):
            high = middle
        else:
            low = middle + 1
    return low


def _is_enough(load: Load, workers: int, share: float, within_s: float) -> bool:
    return float(np.quantile(find_waits(load, workers), share)) <= within_s


def draw_retrainings(
    generator: np.random.Generator, *, models: int, period_s: float, length_s: float, spread: float
) -> Seconds:
    """Return when trainings end, ascending: each model's every `period_s`, from a random time on.

    Each training takes longer or shorter by a `spread` of the period: the standard deviation.
    """
    rounds = int(length_s / period_s) + 1
    begins = generator.uniform(0, period_s, size=(models, 1))
    late = generator.normal(0, spread * period_s, size=(models, rounds))
    ends: Seconds = np.sort((begins + period_s * np.arange(rounds) + late).ravel())
    return ends[(ends >= 0) & (ends < length_s)]


def draw_services(
    generator: np.random.Generator, count: int, *, warm: Sequence[float], cold: Sequence[float], share: float
) -> tuple[Seconds, NDArray[np.bool_]]:
    """Return how long each job keeps a worker, as measured, and which are cold: a `share` of them."""
    is_cold = generator.random(count) < share
    services = np.where(is_cold, generator.choice(cold, size=count), generator.choice(warm, size=count))
    return services, is_cold
