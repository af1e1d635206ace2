"""Rows through both towers of a pair: their outputs and their latency, or why there are none."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
from torch import Tensor

from exporter.comparison.latency import PairRunner
from exporter.comparison.output_diff import compare_outputs, join_calls
from exporter.data.encode import encode, encode_in_calls
from exporter.data.parquet import open_parquet
from exporter.distributed.fork_server import ForkServer
from exporter.errors import ExportError, InvalidRows
from exporter.redaction import shorten
from exporter.reports.comparison import LONGEST_TEXT, LatencyDiff, LatencyRatio, Outputs
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.spec import TowerName

_ROWS_PER_CALL = 256  # at most; never more than both packages take
_ROWS_TIMED = 64  # in the larger of the two batches whose calls are timed


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The rows that both towers of a pair are run on, and how long their calls are timed."""

    rows_uri: str | None = None  # of users and samples; None: the sample rows that the newer export read
    items_uri: str | None = None  # of items; None: the items that the newer export read
    max_rows: int = 2000
    latency_seconds: float = 2.0  # per batch size; 0: calls are not timed

    def rows_of(self, tower: TowerName) -> str | None:
        return self.items_uri if tower.reads_items else self.rows_uri


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleRows:
    """The first rows of a parquet input, with the columns that both towers read."""

    uri: str
    table: pa.Table

    def part(self, first: int, rows: int) -> pa.Table:
        return self.table.slice(first, rows)


def run_both(
    old: DownloadedTower,
    new: DownloadedTower,
    *,
    options: RunOptions,
    scratch: Path,
    server: ForkServer | None = None,
) -> tuple[Outputs, LatencyDiff]:
    """Run both towers on the same rows and time them; what cannot be run says why.

    A `server` that runs packages starts their process at once.

    Raises:
        ExportError: rows that were asked for by name cannot be read.
    """
    try:
        rows = read_sample(old, new, options)
    except ExportError as error:
        if options.rows_of(new.entry.name) is not None:
            raise
        return Outputs(note=explain(error)), LatencyDiff(note=explain(error))
    try:
        with PairRunner(old, new, scratch=scratch, server=server) as pair:
            return _outputs(pair, old, new, rows), _latency(pair, old, new, rows, options)
    except ExportError as error:
        outputs = Outputs(rows_uri=rows.uri, note=explain(error))
        return outputs, LatencyDiff(note=explain(error))


def explain(error: ExportError) -> str:
    """Return an error as a note in a comparison."""
    return shorten(f"[{error.code}] {error.message}", 2 * LONGEST_TEXT)


def read_sample(old: DownloadedTower, new: DownloadedTower, options: RunOptions) -> SampleRows:
    """Read the rows that were asked for, or else those that the newer export has read.

    What the older manifest names is not read: the newer release's owner may not be allowed to.

    Raises:
        ExportError: no rows are named, or they cannot be read.
    """
    role = "item_input" if new.entry.name.reads_items else "sample_input"
    named = (source.uri for source in new.manifest.sources if source.role == role)
    uri = options.rows_of(new.entry.name) or next(named, None)
    if uri is None:
        raise InvalidRows("the newer manifest names no rows", hint="name some with --rows or --items")
    columns = list(dict.fromkeys(feature.name for side in (old, new) for feature in side.features))
    return SampleRows(uri=uri, table=_read_first(uri, columns, options.max_rows))


def _read_first(uri: str, columns: list[str], most: int) -> pa.Table:
    parts: list[pa.Table] = []
    left = most
    for batch in open_parquet(uri).batches(columns, rows_per_batch=min(_ROWS_PER_CALL, most)):
        parts.append(pa.table(batch.table).slice(0, left))
        left -= parts[-1].num_rows
        if left <= 0:
            break
    return pa.concat_tables(parts)


def _outputs(pair: PairRunner, old: DownloadedTower, new: DownloadedTower, rows: SampleRows) -> Outputs:
    """Run all rows through both towers, and compare the outputs."""
    try:
        found = [
            join_calls([pair.run(side, inputs) for inputs in _calls(tower, rows)])
            for side, tower in _sides(old, new)
        ]
    except InvalidRows as error:
        return Outputs(rows_uri=rows.uri, note=explain(error))
    return Outputs(
        rows_uri=shorten(rows.uri, LONGEST_TEXT),
        rows=rows.table.num_rows,
        outputs=compare_outputs(*found),
    )


def _sides(
    old: DownloadedTower, new: DownloadedTower
) -> tuple[tuple[Literal[0], DownloadedTower], tuple[Literal[1], DownloadedTower]]:
    return (0, old), (1, new)


def _calls(tower: DownloadedTower, rows: SampleRows) -> Iterator[dict[str, Tensor]]:
    size = min(_ROWS_PER_CALL, tower.manifest.max_batch_size)
    for first in range(0, rows.table.num_rows, size):
        yield from encode_in_calls(
            rows.part(first, size), tower.features, tower.plan, where=rows.uri, first_row=first
        )


def _latency(
    pair: PairRunner, old: DownloadedTower, new: DownloadedTower, rows: SampleRows, options: RunOptions
) -> LatencyDiff:
    """Time both towers on one row and on as many as both take in a usual call."""
    if not options.latency_seconds:
        return LatencyDiff(note="calls were not timed, as asked")
    most = min(_ROWS_TIMED, old.manifest.max_batch_size, new.manifest.max_batch_size, rows.table.num_rows)
    ratios: list[LatencyRatio] = []
    try:
        for batch in sorted({1, most}):
            inputs, size = _encode_as_many(old, new, rows, batch)
            ratios.append(pair.compare(*inputs, batch=size, seconds=options.latency_seconds))
    except ExportError as error:
        return LatencyDiff(ratios=tuple(ratios), note=explain(error))
    return LatencyDiff(ratios=tuple(ratios))


def _encode_as_many(
    old: DownloadedTower, new: DownloadedTower, rows: SampleRows, most: int
) -> tuple[tuple[dict[str, Tensor], dict[str, Tensor]], int]:
    """Encode up to `most` rows for one call of each tower; fewer where their sequences are too long."""
    while True:
        part = rows.part(0, most)
        try:
            sides = (encode(part, side.features, side.plan, where=rows.uri) for side in (old, new))
            return (next(sides), next(sides)), most
        except InvalidRows:
            if most == 1:
                raise
            most //= 2
