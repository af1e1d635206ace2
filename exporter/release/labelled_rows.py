"""Held-out rows with their labels, read once, and the tensors that each tower takes of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from exporter.config.schema import ROWS_OF_CHECKPOINT, Feature, IdMapKind
from exporter.data.encode import encode_in_calls, read_features
from exporter.data.parquet import RowBatch, open_parquet
from exporter.data.ragged import Ragged
from exporter.errors import InvalidRows
from exporter.serving.downloaded_tower import DownloadedTower

_ROWS_PER_CALL = 512  # at most; never more than a package takes
_SAMPLED_ROWS = 20_000  # whose values statistics are made of, roughly

Inputs = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class LabelledBatch:
    """Consecutive rows: their columns, and for each tower the inputs of its calls."""

    where: str
    first_row: int
    table: pa.Table
    calls: tuple[tuple[Inputs, ...], ...]


@dataclass(kw_only=True)
class RowCounts:
    """Counts over the rows that were read: of nulls, and of ids that a table has no row for."""

    rows: int = 0  # that were scored
    left_out: int = 0  # because of such ids
    nulls: Counter[str] = field(default_factory=Counter)  # rows, by feature
    ids: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        return self.rows + self.left_out


@dataclass(kw_only=True)
class Sample:
    """Values and lengths of one feature in a sample of the rows."""

    is_ids: bool
    _values: list[NDArray[np.generic]] = field(default_factory=list)
    _lengths: list[NDArray[np.int64]] = field(default_factory=list)

    def add_values(self, values: Tensor) -> None:
        self._values.append(values.reshape(-1).numpy())

    def add_lengths(self, lengths: Tensor) -> None:
        self._lengths.append(lengths.numpy().astype(np.int64))

    def values(self) -> NDArray[np.generic]:
        return np.concatenate(self._values) if self._values else np.empty(0)

    @property
    def rows(self) -> int:
        """The number of rows; of a feature without lengths each has one value, or a vector of them."""
        return sum(map(len, self._lengths)) or sum(map(len, self._values))

    def lengths(self) -> NDArray[np.int64]:
        return np.concatenate(self._lengths) if self._lengths else np.empty(0, dtype=np.int64)


class LabelledRows:
    """The rows of a URI, spread evenly over all of it if there are more than may be read."""

    def __init__(
        self, uri: str, towers: Sequence[DownloadedTower], columns: Sequence[str], *, max_rows: int
    ) -> None:
        """Prepare to read `columns` beside the features of the towers; the first tower's are counted."""
        self.uri = uri
        self._towers = towers
        names = [feature.name for tower in towers for feature in tower.features]
        self._columns = list(dict.fromkeys([*names, *columns]))
        self._size = min(_ROWS_PER_CALL, *(tower.manifest.max_batch_size for tower in towers))
        self._max_rows = max_rows
        self.counts = RowCounts()
        self.samples = {each.name: Sample(is_ids=each.is_sparse) for each in towers[0].features}
        self._batches = 0

    def batches(self) -> Iterator[LabelledBatch]:
        """Yield the rows, without those that name ids which a table has no row for.

        Raises:
            InvalidRows: a column is missing, a row cannot be encoded, or there is no row.
        """
        source = open_parquet(self.uri)
        total = max(1, source.count_rows())
        share = min(1.0, self._max_rows / total)
        self._every = max(1, round(total * share / _SAMPLED_ROWS))  # batches, of which one is looked at
        due = 0.0
        for batch in source.batches(self._columns, rows_per_batch=self._size):
            due += batch.table.num_rows * share
            taken = min(batch.table.num_rows, round(due) - self.counts.read)
            if taken <= 0:
                continue
            labelled = self._encode(replace(batch, table=batch.table.slice(0, taken)))
            if labelled is not None:
                yield labelled

    def _encode(self, batch: RowBatch) -> LabelledBatch | None:
        """Return the batch with its tensors; None if none of its rows can be scored."""
        self._count_nulls(batch.table)
        table = batch.table
        try:
            calls = self._calls(table, batch)
        except InvalidRows:
            known = self._known_rows(batch)
            if known.all():
                raise
            self.counts.left_out += int((~known).sum())
            table = table.filter(pa.array(known))
            if not table.num_rows:
                return None
            calls = self._calls(table, batch)
        self.counts.rows += table.num_rows
        self._take_sample(calls[0])
        return LabelledBatch(where=batch.where, first_row=batch.first_row, table=table, calls=calls)

    def _calls(self, table: pa.Table, batch: RowBatch) -> tuple[tuple[Inputs, ...], ...]:
        """Return the inputs of each tower; towers that take the same share them."""
        made: list[tuple[Inputs, ...]] = []
        for number, tower in enumerate(self._towers):
            for other, calls in zip(self._towers[:number], made, strict=True):
                if other.features == tower.features and other.plan == tower.plan:
                    made.append(calls)
                    break
            else:
                encoded = encode_in_calls(
                    table, tower.features, tower.plan, where=batch.where, first_row=batch.first_row
                )
                made.append(tuple(encoded))
        return tuple(made)

    def _take_sample(self, calls: Sequence[Inputs]) -> None:
        """Count the ids of a batch; keep the values of one batch in several."""
        is_kept, self._batches = self._batches % self._every == 0, self._batches + 1
        for tensor in self._towers[0].plan.inputs:
            name, _, part = tensor.filled_with.rpartition(".")
            sample = self.samples.get(name)
            if sample is None:
                continue
            for inputs in calls:
                if part == "values":
                    self.counts.ids[name] += inputs[tensor.name].numel() if sample.is_ids else 0
                    if is_kept:
                        sample.add_values(inputs[tensor.name])
                elif part == "lengths" and is_kept:
                    sample.add_lengths(inputs[tensor.name])

    def _count_nulls(self, table: pa.Table) -> None:
        for feature in self._towers[0].features:
            self.counts.nulls[feature.name] += table.column(feature.name).null_count

    def _known_rows(self, batch: RowBatch) -> NDArray[np.bool_]:
        """Return which rows name only ids that the tables of all towers have; count the other ids."""
        known = np.ones(batch.table.num_rows, dtype=np.bool_)
        for number, tower in enumerate(self._towers):
            bounded = [each for each in tower.features if _is_bounded(each)]
            features = [_unbounded(each) for each in bounded]
            read = read_features(batch.table, features, where=batch.where, first_row=batch.first_row)
            for feature in bounded:
                ragged, table = read[feature.name], feature.table
                assert table is not None
                bad = (ragged.values < 0) | (ragged.values >= table.rows)
                known[_rows_of_values(ragged)[bad]] = False
                if number == 0:
                    self.counts.unknown[feature.name] += int(bad.sum())
                    self.counts.ids[feature.name] += int(bad.sum())
        return known


def _is_bounded(feature: Feature) -> bool:
    table = feature.table
    return table is not None and table.id_map is None and table.rows != ROWS_OF_CHECKPOINT


def _unbounded(feature: Feature) -> Feature:
    """Return the feature with ids of any size."""
    assert feature.table is not None
    return replace(feature, table=replace(feature.table, id_map=IdMapKind.ZCH))


def _rows_of_values(ragged: Ragged) -> NDArray[np.int64]:
    """Return the row of each value."""
    rows = np.repeat(np.arange(len(ragged)), ragged.per_row)
    return np.repeat(rows, ragged.per_element)
