"""The figures of a model's releases, from job records and manifests: quality, agreement, latency, size."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from exporter.manifest import Manifest, TowerEntry
from exporter.reports.release_report import Finding
from jobs.control.releases import Release, ReleasedTower
from jobs.ids import JobId
from jobs.model import Job, TowerProgress
from service.dashboard.formats import milliseconds, number, short, size
from service.dashboard.models.trends import Figure, Line, Trend

_MOST_MEASURES = 8  # of the release gate that are plotted
_MEGABYTE = 1e6


@dataclass(frozen=True, kw_only=True)
class ReleaseRecord:
    """A release with the jobs and manifests behind it, as far as they can be read."""

    release: Release
    jobs: Mapping[JobId, Job]  # by id: of a retry's release there are several
    manifests: Mapping[str, Manifest]  # by URI

    @property
    def name(self) -> str:
        """The day of the release, or the end of its id."""
        ended = self.release.finished_at
        return ended.strftime("%m-%d %H:%M") if ended else short(self.release.job_id)

    @property
    def job(self) -> Job | None:
        return self.jobs.get(self.release.job_id)

    @property
    def bytes(self) -> int | None:
        """The size of all packages; None if one has no known size."""
        sizes = [tower.package_size for tower in self.release.towers]
        return None if None in sizes else sum(each for each in sizes if each is not None)

    def progress_of(self, tower: ReleasedTower) -> TowerProgress | None:
        job = self.jobs.get(tower.job_id)
        own = (
            (each for each in job.towers if (each.name, each.target) == (tower.name, tower.target))
            if job
            else ()
        )
        return next(iter(own), None)

    def entry_of(self, tower: ReleasedTower) -> TowerEntry | None:
        manifest = self.manifests.get(tower.manifest_uri)
        own = (each for each in manifest.towers if each.name == tower.name) if manifest else ()
        return next(iter(own), None)


# Finds the figure of one tower of a release.
_Find = Callable[[ReleaseRecord, ReleasedTower], Figure | None]


def find_trends(oldest_first: Sequence[ReleaseRecord]) -> tuple[Trend, ...]:
    """Return all quantities that releases have figures of."""
    found = [
        *_measures(oldest_first),
        _of_towers(
            oldest_first, _latency_of(oldest_first), id="latency", title="Time per call", unit="milliseconds"
        ),
        _of_towers(oldest_first, _size, id="size", title="Size of the packages", unit="MB"),
        _of_towers(
            oldest_first,
            _difference,
            id="difference",
            title="Difference from eager",
            unit="share of what is allowed",
            limit=1.0,
        ),
    ]
    return tuple(trend for trend in found if trend.lines)


def _of_towers(
    oldest_first: Sequence[ReleaseRecord],
    find: _Find,
    *,
    id: str,
    title: str,
    unit: str,
    limit: float | None = None,
) -> Trend:
    lines: dict[str, list[Figure | None]] = {}
    for at, record in enumerate(oldest_first):
        for tower in record.release.towers:
            if (figure := find(record, tower)) is not None:
                lines.setdefault(_label(tower), [None] * len(oldest_first))[at] = figure
    made = tuple(Line(name, tuple(figures)) for name, figures in lines.items())
    return Trend(id=id, title=title, unit=unit, lines=made, limit=limit)


def _size(_record: ReleaseRecord, tower: ReleasedTower) -> Figure | None:
    count = tower.package_size
    return None if count is None else Figure(count / _MEGABYTE, size(count))


def _difference(record: ReleaseRecord, tower: ReleasedTower) -> Figure | None:
    progress = record.progress_of(tower)
    summary = progress.verification if progress else None
    if summary is None or not summary.tolerance:
        return None
    return Figure(summary.largest_difference / summary.tolerance, number(summary.largest_difference))


def _latency_of(oldest_first: Sequence[ReleaseRecord]) -> _Find:
    """Return what finds a tower's time per call, at the largest batch of its newest timed release."""
    batches: dict[str, int] = {}
    for record in oldest_first:
        for tower in record.release.towers:
            if (entry := record.entry_of(tower)) and entry.verified.latency:
                batches[_label(tower)] = max(each.batch for each in entry.verified.latency)

    def find(record: ReleaseRecord, tower: ReleasedTower) -> Figure | None:
        entry = record.entry_of(tower)
        timed = entry.verified.latency if entry else ()
        found = (each for each in timed if each.batch == batches[_label(tower)])
        return next(
            (
                Figure(each.compiled_ms, f"{milliseconds(each.compiled_ms)} for {each.batch} rows")
                for each in found
            ),
            None,
        )

    return find


def _measures(oldest_first: Sequence[ReleaseRecord]) -> Iterator[Trend]:
    """Yield the measures of the release gate: those of the newest release first."""
    measures = dict.fromkeys(
        finding.measure for record in reversed(oldest_first) for _, finding in _findings(record.release)
    )
    for at, measure in enumerate(list(measures)[:_MOST_MEASURES]):
        lines: dict[str, list[Figure | None]] = {}
        for place, record in enumerate(oldest_first):
            for name, finding in _findings(record.release):
                if finding.measure == measure and finding.value is not None:
                    figure = Figure(
                        finding.value, f"{finding.value:.4g}, {finding.verdict.replace('_', ' ')}"
                    )
                    lines.setdefault(name, [None] * len(oldest_first))[place] = figure
        made = tuple(Line(name, tuple(figures)) for name, figures in lines.items())
        title = f"Release gate: {measure.replace('_', ' ')}"
        yield Trend(id=f"measure-{at}", title=title, unit=measure.replace("_", " "), lines=made)


def _findings(release: Release) -> Iterable[tuple[str, Finding]]:
    for verdict in release.verdicts:
        for finding in verdict.findings:
            if finding.value is not None:
                target = f" ({verdict.target})" if verdict.target else ""
                yield f"{finding.subject or 'release'}{target}", finding


def _label(tower: ReleasedTower) -> str:
    return f"{tower.name} ({tower.target})" if tower.target else tower.name
