"""The simulation of queues is held against what is known of them in closed form."""

from math import exp, factorial

import numpy as np
import pytest

from benchmarks.measure.queueing import (
    Load,
    draw_retrainings,
    draw_services,
    fewest_workers,
    find_waits,
)


def erlang_c(workers: int, busy: float) -> float:
    """The probability that a job waits, for random arrivals and services (A. K. Erlang, 1917)."""
    full = busy**workers / factorial(workers) * workers / (workers - busy)
    return full / (sum(busy**k / factorial(k) for k in range(workers)) + full)


def random_load(busy: float, *, count: int = 200_000) -> Load:
    generator = np.random.default_rng(1)
    arrivals = np.cumsum(generator.exponential(1 / busy, size=count))
    return Load(arrivals=arrivals, services=generator.exponential(1.0, size=count))


@pytest.mark.parametrize(("workers", "busy"), [(1, 0.5), (2, 1.6), (10, 8.5)])
def test_jobs_wait_as_often_and_as_long_as_erlangs_formula_says(workers: int, busy: float) -> None:
    waits = find_waits(random_load(busy), workers)
    often = erlang_c(workers, busy)
    assert float((waits > 0).mean()) == pytest.approx(often, rel=0.05)
    assert float(waits.mean()) == pytest.approx(often / (workers - busy), rel=0.1)
    later = float((waits > 1.0).mean())
    assert later == pytest.approx(often * exp(-(workers - busy)), rel=0.15)


def test_the_fewest_workers_are_enough_and_one_less_is_not() -> None:
    load = random_load(20.0, count=50_000)
    workers = fewest_workers(load, share=0.95, within_s=0.2)
    assert np.quantile(find_waits(load, workers), 0.95) <= 0.2
    assert np.quantile(find_waits(load, workers - 1), 0.95) > 0.2


def test_one_job_needs_one_worker() -> None:
    load = Load(arrivals=np.array([3.0]), services=np.array([100.0]))
    assert fewest_workers(load, share=0.95, within_s=0.0) == 1


def test_each_model_is_retrained_once_in_a_period() -> None:
    ends = draw_retrainings(
        np.random.default_rng(2), models=1_000, period_s=3600.0, length_s=24 * 3600.0, spread=0.05
    )
    assert len(ends) == pytest.approx(24_000, rel=0.01)
    assert (np.diff(ends) >= 0).all() and ends[0] >= 0 and ends[-1] < 24 * 3600


def test_cold_jobs_are_as_many_as_asked_for_and_take_their_own_time() -> None:
    services, is_cold = draw_services(
        np.random.default_rng(3), 100_000, warm=(1.0, 2.0), cold=(30.0,), share=0.1
    )
    assert float(is_cold.mean()) == pytest.approx(0.1, rel=0.05)
    assert set(services[is_cold]) == {30.0} and set(services[~is_cold]) == {1.0, 2.0}
