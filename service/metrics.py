"""Prometheus metrics, computed from Redis at every scrape, so that all replicas report the same."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from exporter.spec import CPU_TARGETS, Device
from jobs.fleet.roster import Roster, WorkerNotice
from jobs.fleet.tallies import BUCKETS, Tallies, Tally
from jobs.model import JobState
from jobs.route import Route, split_route
from jobs.stores.job_store import JobTotals

_STAGE_LABELS = ("stage", "tower", "mode", "device")
_TOWER_LABELS = ("tower", "mode", "device", "cold")
_GPU_LABELS = ("host", "gpu", "name")

Labels = tuple[str, ...]


class SlipwayCollector(Collector):
    """Reads the stores at every scrape."""

    def __init__(self, totals: JobTotals, roster: Roster, tallies: Tallies) -> None:
        """Take the stores to read from."""
        self._totals = totals
        self._roster = roster
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        yield self._jobs()
        yield self._target_jobs()
        yield self._queue_age()
        yield from self._workers()
        counted = self._tallies.read()
        yield _attempts(counted)
        yield _gate_failures(counted)
        yield _releases(counted)
        yield _stage_seconds(counted)
        yield _tower_seconds(counted)
        yield self._malformed()

    def _jobs(self) -> Metric:
        jobs = GaugeMetricFamily("slipway_jobs", "Jobs on record, by state.", labels=["state"])
        for state in JobState:
            jobs.add_metric([state], self._totals.count(state))
        return jobs

    def _target_jobs(self) -> Metric:
        """Count the jobs of each route, to scale its workers by: a job for two targets counts for both."""
        jobs = GaugeMetricFamily(
            "slipway_target_jobs",
            "Jobs that wait for the workers of a target, or run on them.",
            labels=["target", "torch", "state"],
        )
        for state in (JobState.QUEUED, JobState.RUNNING):
            counted = self._totals.count_by_route(state)
            for route in sorted({*counted, *CPU_TARGETS, "cuda", *self._routes()}):
                target, torch = split_route(route)
                jobs.add_metric([target, torch or "", state], counted.get(route, 0))
        return jobs

    def _routes(self) -> frozenset[Route]:
        return frozenset(route for worker in self._roster.alive() for route in worker.served)

    def _queue_age(self) -> Metric:
        oldest = self._totals.oldest(JobState.QUEUED)
        age = (self._totals.now() - oldest.created_at).total_seconds() if oldest else 0.0
        return GaugeMetricFamily("slipway_queue_age_seconds", "Age of the oldest queued job.", value=age)

    def _malformed(self) -> Metric:
        malformed = CounterMetricFamily(
            "slipway_malformed_data", "Data in Redis that no program could read, by kind.", labels=["kind"]
        )
        for kind, amount in sorted(self._tallies.read_malformed().items()):
            malformed.add_metric([kind], amount)
        return malformed

    def _workers(self) -> Iterator[Metric]:
        alive = self._roster.alive()
        workers = GaugeMetricFamily("slipway_workers", "Workers alive, by device.", labels=["device"])
        busy = GaugeMetricFamily("slipway_workers_busy", "Workers at work, by device.", labels=["device"])
        for device in Device:
            of_kind = [worker for worker in alive if worker.device is device]
            workers.add_metric([device], len(of_kind))
            busy.add_metric([device], sum(bool(worker.jobs) for worker in of_kind))
        yield workers
        yield busy
        yield from _gpus(alive)


Counted = Mapping[Tally, float]


def render(totals: JobTotals, roster: Roster, tallies: Tallies) -> bytes:
    """Return the metrics as text, for a scraper."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SlipwayCollector(totals, roster, tallies))
    return generate_latest(registry)


def _attempts(counted: Counted) -> Metric:
    attempts = CounterMetricFamily(
        "slipway_attempts", "Attempts that ended, by the state they left the job in.", labels=["state"]
    )
    for tally, amount in counted.items():
        if tally.name == "attempts":
            attempts.add_metric([tally.ending], amount)
    return attempts


def _gpus(alive: Iterable[WorkerNotice]) -> Iterator[Metric]:
    """Report each GPU once, however many workers share its machine."""
    used = GaugeMetricFamily(
        "slipway_gpu_memory_used_bytes", "Memory of a GPU that any process uses.", labels=_GPU_LABELS
    )
    total = GaugeMetricFamily("slipway_gpu_memory_bytes", "Memory of a GPU.", labels=_GPU_LABELS)
    busy = GaugeMetricFamily(
        "slipway_gpu_busy_ratio", "Recent utilisation of a GPU, 0 to 1.", labels=_GPU_LABELS
    )
    found = {(worker.host, str(gpu.index), gpu.name): gpu for worker in alive for gpu in worker.gpus}
    for labels, gpu in sorted(found.items()):
        used.add_metric(labels, gpu.memory_used)
        total.add_metric(labels, gpu.memory_total)
        if gpu.busy is not None:
            busy.add_metric(labels, gpu.busy)
    yield from (used, total, busy)


def _gate_failures(counted: Counted) -> Metric:
    failures = CounterMetricFamily(
        "slipway_gate_failures", "Towers whose package did not pass verification.", labels=["tower"]
    )
    for tally, amount in counted.items():
        if tally.name == "gate_failures":
            failures.add_metric([tally.tower or ""], amount)
    return failures


def _releases(counted: Counted) -> Metric:
    releases = CounterMetricFamily(
        "slipway_releases_judged", "Releases that the release gate judged, by verdict.", labels=["verdict"]
    )
    for tally, amount in counted.items():
        if tally.name == "releases":
            releases.add_metric([tally.ending], amount)
    return releases


def _stage_seconds(counted: Counted) -> Metric:
    family = HistogramMetricFamily(
        "slipway_stage_seconds", "Duration of the stages of exports.", labels=_STAGE_LABELS
    )
    return _histogram(family, "stage", counted, _of_stage)


def _tower_seconds(counted: Counted) -> Metric:
    family = HistogramMetricFamily(
        "slipway_tower_seconds",
        "Duration of published towers, all stages; cold ones were compiled, warm ones reused compiled code.",
        labels=_TOWER_LABELS,
    )
    return _histogram(family, "tower", counted, _of_tower)


def _of_stage(tally: Tally) -> Labels:
    return tally.stage or "", tally.tower or "", tally.mode or "", tally.device or ""


def _of_tower(tally: Tally) -> Labels:
    return tally.tower or "", tally.mode or "", tally.device or "", str(bool(tally.cold)).lower()


def _histogram(
    family: HistogramMetricFamily, name: str, counted: Counted, labels_of: Callable[[Tally], Labels]
) -> Metric:
    """Fill the family with the tallies named `<name>_bucket`, `<name>_count` and `<name>_sum`."""
    kinds: dict[Labels, dict[str, float]] = defaultdict(dict)
    for tally, amount in counted.items():
        if tally.name.startswith(f"{name}_"):
            what = tally.name.removeprefix(f"{name}_") + (str(tally.up_to) if tally.up_to else "")
            kinds[labels_of(tally)][what] = amount
    for labels, found in sorted(kinds.items()):
        buckets = [(str(float(bound)), found.get(f"bucket{bound}", 0.0)) for bound in BUCKETS]
        family.add_metric(labels, [*buckets, ("+Inf", found.get("count", 0.0))], found.get("sum", 0.0))
    return family
