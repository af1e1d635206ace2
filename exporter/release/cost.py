"""Cost of serving a release, beside the baseline's: latency of its packages, and bytes on disk."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from torch import Tensor

from exporter.comparison.latency import PairRunner
from exporter.data.encode import encode_in_calls
from exporter.data.parquet import open_parquet
from exporter.errors import ExportError
from exporter.manifest import TowerEntry
from exporter.release.releases import JudgedRelease
from exporter.reports.release_report import Finding, Verdict
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.spec import TowerName

_BATCHES = (1, 128)  # rows per call
_SECONDS, _PATIENCE_S = 0.5, 25.0  # of calls; the latter only while the bound is within what is known


class Cost:
    """Cost of a release beside its baseline; a context manager that loads packages ahead.

    The process that times a pair of packages can score held-out rows with them before.
    """

    def __init__(self, judged: JudgedRelease) -> None:
        """Prepare to measure the towers that both releases have."""
        self._judged = judged
        self.pairs: dict[TowerName, Future[PairRunner]] = {}
        self._running = ExitStack()

    def __enter__(self) -> Self:
        judged = self._judged
        threads = self._running.enter_context(ThreadPoolExecutor(max(1, len(judged.candidate.towers))))
        for name, new in judged.candidate.towers.items():
            old = judged.baseline.towers.get(name)
            if old is not None and rows_uri_of_tower(judged, name) is not None:
                pair = PairRunner(old, new, scratch=judged.scratch, server=judged.server)
                self.pairs[name] = threads.submit(self._running.enter_context, pair)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wait(self.pairs.values())  # a process that is still starting must be known before all are ended
        self._running.close()

    def judge(self) -> Iterator[Finding]:
        """Yield the findings on size and latency, tower by tower."""
        for name, tower in self._judged.candidate.towers.items():
            old = self._judged.baseline.towers.get(name)
            yield _judge_size(self._judged, name, tower.entry, old.entry if old else None)
            if old is not None:
                yield from self._judge_latency(name, tower, old)

    def _judge_latency(
        self, name: TowerName, new: DownloadedTower, old: DownloadedTower
    ) -> Iterator[Finding]:
        most = min(new.manifest.max_batch_size, old.manifest.max_batch_size)
        if name not in self.pairs:
            yield _without_rows(name, _BATCHES[0])
            return
        try:
            runner = self.pairs[name].result()
            for batch in sorted({min(size, most) for size in _BATCHES}):
                calls = _read_calls(self._judged, name, new, old, batch)
                if calls is None:
                    yield _without_rows(name, batch)
                    return
                yield _judge_ratio(self._judged, name, runner, calls, batch)
        except ExportError as error:
            detail = f"the packages could not be timed in one process: {error.message}"
            yield Finding(measure="latency", subject=name, verdict=Verdict.TOO_FEW, detail=detail)


def rows_uri_of_tower(judged: JudgedRelease, name: TowerName) -> str | None:
    """Return the URI of rows that a tower can be called with."""
    return judged.item_input_uri if name.reads_items else judged.rows_uri


def _judge_size(judged: JudgedRelease, name: TowerName, entry: TowerEntry, old: TowerEntry | None) -> Finding:
    """Return the finding on the bytes of packages, tables, item vectors and index."""
    size, allowed = _bytes(entry), judged.gate.size_ratio
    finding = Finding(measure="size", subject=name, value=size, allowed=allowed, verdict=Verdict.NO_BASELINE)
    if old is None:
        return finding
    before = _bytes(old)
    ratio = size / before
    return finding.model_copy(
        update={
            "baseline": before,
            "verdict": Verdict.FAILED if ratio > allowed else Verdict.PASSED,
            "detail": f"{size:,} bytes, {ratio:.3g} of the baseline's {before:,}; allowed are {allowed:g}",
        }
    )


def _bytes(entry: TowerEntry) -> int:
    """Return the bytes of what grows with the model; configs and the like are left out."""
    files = [entry.package]
    files += [entry.sparse.package] if entry.sparse else []
    files += entry.tables.all_files if entry.tables else []
    files += entry.vectors.all_files if entry.vectors else []
    return sum(file.size for file in files)


@dataclass(frozen=True, kw_only=True)
class _Calls:
    """Inputs of the same rows, for the old and the new package."""

    old: dict[str, Tensor]
    new: dict[str, Tensor]


def _without_rows(name: TowerName, batch: int) -> Finding:
    """Return the finding that a tower was not timed; a tower of items is called before requests come in."""
    detail = f"there are no {batch} rows to call the {name} tower with"
    verdict = Verdict.NO_BASELINE if name.reads_items else Verdict.TOO_FEW
    return Finding(measure="latency", subject=name, verdict=verdict, detail=detail)


def _judge_ratio(
    judged: JudgedRelease, name: TowerName, runner: PairRunner, calls: _Calls, batch: int
) -> Finding:
    """Call both in turn until it is known on which side of the bound the ratio of their medians is."""
    bound = judged.gate.latency_ratio
    ratio = runner.compare(
        calls.old, calls.new, batch=batch, seconds=_SECONDS, bound=bound, patience_s=_PATIENCE_S
    )
    above = ratio.is_above(bound)
    verdict = {True: Verdict.FAILED, False: Verdict.PASSED, None: Verdict.TOO_FEW}[above]
    detail = (
        f"{ratio.ratio:.3f} of the baseline's median over {ratio.rounds} calls in turn, between "
        f"{ratio.low:.3f} and {ratio.high:.3f}; allowed are {bound:g}"
    )
    if above is None:
        detail += ": undecided, the bound lies within the interval"
    return Finding(
        measure=f"latency@{batch}",
        subject=name,
        value=ratio.new_ms,
        baseline=ratio.old_ms,
        allowed=bound,
        rows=ratio.rounds,
        verdict=verdict,
        detail=detail,
    )


def _read_calls(
    judged: JudgedRelease, name: TowerName, new: DownloadedTower, old: DownloadedTower, batch: int
) -> _Calls | None:
    """Return the inputs of the first rows for both packages; None if there are fewer than `batch`."""
    uri = rows_uri_of_tower(judged, name)
    if uri is None:
        return None
    names = list(dict.fromkeys(feature.name for tower in (new, old) for feature in tower.features))
    for rows in open_parquet(uri).batches(names, rows_per_batch=batch):
        if rows.table.num_rows < batch:
            return None
        made = [
            next(
                encode_in_calls(
                    rows.table, tower.features, tower.plan, where=rows.where, first_row=rows.first_row
                )
            )
            for tower in (old, new)
        ]
        return _Calls(old=made[0], new=made[1])
    return None
