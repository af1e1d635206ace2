"""Simulate a fleet: ten thousand models that are retrained every hour, exported for three targets.

First it measures, with two workers on this machine: how long warm and cold jobs keep a worker, what a job
leaves in Redis, and what requests it makes of a store. Then it simulates queues of a day from that. A real
run of twenty jobs on the two workers is held against the simulation of the same twenty.
"""

import argparse
import functools
import sys
from collections.abc import Sequence
from contextlib import suppress
from math import inf

import numpy as np
from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_lines
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, format_number
from benchmarks.measure.models import Model, demo_model
from benchmarks.measure.queueing import Load, draw_retrainings, draw_services, fewest_workers, find_waits
from benchmarks.measure.two_workers import WORKERS, DoneJob, TwoWorkers, on_s3, running_two_workers
from exporter.spec import ExportSpec

_JOBS = 20  # of the real run
_BURST = 8  # jobs that are sent at once, to see how long each keeps a worker
_COLD = 2
_LOAD = 0.8  # of the real run's workers
_DRAWS = 1_000  # of the twenty jobs' simulation
_DAY_S, _HOUR_S = 86_400.0, 3_600.0
_SPREAD = 0.05  # of the period, by which trainings are longer or shorter
_SHARE = 0.95  # of jobs that wait no longer than the bound
_COLD_SHARES = (0.0, 0.001, 0.01, 0.1, 1.0)
_READS, _WRITES = ("GET", "HEAD"), ("PUT", "POST")


class Prices(BaseModel):
    """Dollars; the defaults are list prices of a large cloud, to be replaced by one's own."""

    worker_hour: float = 0.10  # two cores and 8 GB
    million_writes: float = 5.0
    million_reads: float = 0.4
    gigabyte_month: float = 0.023


class Measured(BaseModel):
    """Figures of the two workers: seconds that a job keeps a worker, bytes in Redis, requests of a store."""

    warm_s: tuple[float, ...]
    cold_s: tuple[float, ...]
    turnaround_s: float  # from the end of a job to the begin of the worker's next, which the above include
    redis_bytes: float  # that a finished job leaves
    writes: float  # requests of a job
    reads: float
    stored_bytes: int  # of a release


class RealRun(BaseModel):
    """The real jobs, and what the simulation says of the same arrivals: median, and 5 to 95 of 100 draws."""

    jobs: int
    mean_wait_s: float
    p95_wait_s: float
    makespan_s: float
    simulated_mean_wait_s: tuple[float, float, float]
    simulated_p95_wait_s: tuple[float, float, float]
    simulated_makespan_s: tuple[float, float, float]


class FleetPoint(BaseModel):
    """One simulated day of one target's queue."""

    cold_share: float
    jobs: int
    workers: int  # the fewest with which 95 of 100 jobs wait no longer than the bound
    busy: float  # share of the workers' time
    p95_wait_s: float
    dollars: float  # of a release: workers and store, for one target


class FleetFigures(BaseModel):
    """All figures, with what they were asked for."""

    models: int
    targets: int
    wait_bound_s: float
    retention_days: float
    prices: Prices
    measured: Measured
    real: RealRun
    points: tuple[FleetPoint, ...]
    redis_gigabytes: float


def main() -> int:
    parser = build_parser("fleet", __doc__)
    parser.add_argument("--models", type=_count, default=10_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--targets", type=_count, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--wait",
        type=_amount,
        default=10.0,
        metavar="S",
        help="bound of 95 of 100 waits; default: %(default)s",
    )
    parser.add_argument(
        "--retention-days",
        type=_amount,
        default=3.0,
        metavar="D",
        help="of job records (SLIPWAY_JOB_RETENTION) and releases; default: %(default)s",
    )
    for name, price in Prices():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=_amount,
            default=price,
            metavar="$",
            help="price; default: %(default)s",
        )
    given = parser.parse_args()
    return run_benchmark("fleet", given, functools.partial(measure, given))


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)


def _amount(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (amount := float(text)) < inf:
            return amount
    raise argparse.ArgumentTypeError(f"{text!r} is no amount of 0 or more")


def measure(given: argparse.Namespace, run: Run) -> Report:
    """Measure two workers, compare their real run with its simulation, and simulate the fleet."""
    model = demo_model(run.folder)
    with running_two_workers(run.folder / "stack") as workers:
        measured, real = _measure(run, model, workers)
    prices = Prices(**{name: getattr(given, name) for name in Prices.model_fields})
    figures = FleetFigures(
        models=given.models,
        targets=given.targets,
        wait_bound_s=given.wait,
        retention_days=given.retention_days,
        prices=prices,
        measured=measured,
        real=real,
        points=tuple(
            simulate(measured, prices, given.models, share, given.wait, given.retention_days)
            for share in _COLD_SHARES
        ),
        redis_gigabytes=24 * given.models * given.retention_days * measured.redis_bytes / 1e9,
    )
    return Report(figures=figures, tables=tables(figures), draw=functools.partial(draw, figures))


def _measure(run: Run, model: Model, workers: TwoWorkers) -> tuple[Measured, RealRun]:
    """Run cold jobs, then a burst of warm ones, then the real run."""
    count, seeds = 4 if run.quick else _JOBS, iter(range(1, 1_000))

    def specs(many: int, model: Model = model) -> list[ExportSpec]:
        return [on_s3(model.spec(run.folder, seed=next(seeds))) for _ in range(many)]

    cold: list[DoneJob] = []
    for number in range(1 if run.quick else _COLD):
        cold += workers.run(specs(1, demo_model(run.folder, layers=2 + number)), [0.0])
        run.say(f"cold: {cold[-1].ended - cold[-1].started:.1f} s")
    workers.run(specs(WORKERS), [0.0] * WORKERS)  # the second worker's first job reads the cache from disk
    burst = workers.run(specs(_BURST), [0.0] * _BURST)
    took = [job.ended - job.started for job in burst]
    kept = (max(job.ended for job in burst) - min(job.started for job in burst)) * WORKERS / _BURST
    turnaround = max(0.0, kept - sum(took) / _BURST)
    warm = tuple(round(each + turnaround, 3) for each in took)
    run.say(f"a warm job keeps a worker {kept:.2f} s, {turnaround:.2f} of them between jobs")
    requests = workers.count_requests()
    pauses = np.random.default_rng(0).exponential(kept / WORKERS / _LOAD, size=count)
    real = workers.run(specs(count), [0.0, *map(float, pauses[1:])])
    asked = workers.count_requests() - requests
    run.say(f"{count} jobs ran")
    measured = Measured(
        warm_s=warm,
        cold_s=tuple(round(job.ended - job.started + turnaround, 3) for job in cold),
        turnaround_s=round(turnaround, 3),
        redis_bytes=workers.redis_bytes(real) / count,
        writes=sum(asked[method] for method in _WRITES) / count,
        reads=sum(asked[method] for method in _READS) / count,
        stored_bytes=real[0].size,
    )
    return measured, _compare(real, measured)


def _compare(real: Sequence[DoneJob], measured: Measured) -> RealRun:
    """Simulate the real jobs' arrivals with services as measured before."""
    generator = np.random.default_rng(1)
    arrivals = np.array([job.arrived for job in real])
    order = np.argsort(arrivals)
    drawn = []
    for _ in range(_DRAWS):
        services = generator.choice(measured.warm_s, size=len(real))
        load = Load(arrivals=arrivals[order], services=services)
        waits = find_waits(load, WORKERS)
        ended = float((load.arrivals + waits + services).max()) - measured.turnaround_s
        drawn.append((float(waits.mean()), float(np.quantile(waits, _SHARE)), ended))
    mean, late, span = (_middle([each[place] for each in drawn]) for place in range(3))
    waited = [job.started - job.arrived for job in real]
    return RealRun(
        jobs=len(real),
        mean_wait_s=sum(waited) / len(waited),
        p95_wait_s=float(np.quantile(waited, _SHARE)),
        makespan_s=max(job.ended for job in real),
        simulated_mean_wait_s=mean,
        simulated_p95_wait_s=late,
        simulated_makespan_s=span,
    )


def _middle(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = (float(np.quantile(values, share)) for share in (0.05, 0.5, 0.95))
    return middle, low, high


def simulate(
    measured: Measured, prices: Prices, models: int, cold_share: float, bound_s: float, retention_days: float
) -> FleetPoint:
    """Simulate a day of one target's queue, with the fewest workers that keep the bound."""
    generator = np.random.default_rng(2)
    arrivals = draw_retrainings(generator, models=models, period_s=_HOUR_S, length_s=_DAY_S, spread=_SPREAD)
    services, _ = draw_services(
        generator, len(arrivals), warm=measured.warm_s, cold=measured.cold_s, share=cold_share
    )
    load = Load(arrivals=arrivals, services=services)
    workers = fewest_workers(load, share=_SHARE, within_s=bound_s)
    waits = find_waits(load, workers)
    store = (
        measured.writes * prices.million_writes / 1e6
        + measured.reads * prices.million_reads / 1e6
        + measured.stored_bytes / 1e9 * prices.gigabyte_month * retention_days / 30
    )
    return FleetPoint(
        cold_share=cold_share,
        jobs=len(arrivals),
        workers=workers,
        busy=load.busy / workers,
        p95_wait_s=float(np.quantile(waits, _SHARE)),
        dollars=workers * prices.worker_hour * 24 / len(arrivals) + store,
    )


def tables(result: FleetFigures) -> tuple[Table, ...]:
    """Return tables of what was measured, of the real run, and of the simulated days."""
    measured, real = result.measured, result.real
    left = Table(
        title=f"Measured with {WORKERS} workers on this machine",
        columns=("figure", "value"),
        rows=(
            ("warm job keeps a worker, s", Spread.of(measured.warm_s).text()),
            ("cold job keeps a worker, s", Spread.of(measured.cold_s).text()),
            ("of these, between two jobs, s", format_number(measured.turnaround_s)),
            ("Redis, bytes of a finished job", format_number(measured.redis_bytes)),
            ("writes and reads of the store", f"{measured.writes:.1f}, {measured.reads:.1f}"),
            ("packages of a release, MB", format_number(measured.stored_bytes / 1e6)),
        ),
    )
    rows = (
        ("mean wait", real.mean_wait_s, real.simulated_mean_wait_s),
        ("p95 wait", real.p95_wait_s, real.simulated_p95_wait_s),
        ("until all had ended", real.makespan_s, real.simulated_makespan_s),
    )
    held = Table(
        title=f"{real.jobs} real jobs against the simulation of the same arrivals, seconds",
        columns=("figure", "real", "simulated (5 to 95 of 100 draws)"),
        rows=tuple(
            (name, format_number(found), f"{said[0]:.2f} ({said[1]:.2f} to {said[2]:.2f})")
            for name, found, said in rows
        ),
    )
    days = Table(
        title=f"A day of {result.models:,} models retrained hourly, one of {result.targets} targets; 95 of "
        f"100 jobs wait {result.wait_bound_s:g} s at most",
        columns=("cold share", "jobs", "workers", "busy", "p95 wait, s", "dollars a release"),
        rows=tuple(
            (
                f"{each.cold_share:g}",
                f"{each.jobs:,}",
                f"{each.workers:,}",
                f"{each.busy:.0%}",
                format_number(each.p95_wait_s),
                f"{each.dollars:.6f}",
            )
            for each in result.points
        ),
    )
    redis = Table(
        title="Redis",
        columns=("records kept, days", "gigabytes"),
        rows=((f"{result.retention_days:g}", format_number(result.redis_gigabytes)),),
    )
    return left, held, days, redis


def draw(result: FleetFigures, figure: Figure) -> None:
    """Plot workers of all targets over the share of cold jobs."""
    axes = figure.subplots()
    shares = [each.cold_share for each in result.points]
    series = {"workers of all targets": [float(each.workers * result.targets) for each in result.points]}
    draw_lines(
        axes, shares, series, Titles(title="Workers of the fleet", x="share of cold jobs", y="workers")
    )
    axes.set_xscale("symlog", linthresh=0.001)
    axes.set_yscale("log")


if __name__ == "__main__":
    sys.exit(main())
