"""Real rows of a tower's features, and the tensors that are made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from exporter.config.schema import Feature
from exporter.data.encode import read_features, to_tensors
from exporter.data.ids import Ids
from exporter.data.parquet import open_parquet
from exporter.data.ragged import Counts, Ragged, concatenate
from exporter.data.remainders import Remainders
from exporter.dims.plan import DimPlan
from exporter.dims.sizes import sizes_of

_ROWS_READ = 8192  # enough to fill large batches and meet long histories; bounds memory
_VALUES_READ = 1 << 24  # of all features; no more rows are read once they hold as many
_BATCH_VALUES = 1 << 26  # of all features, in a batch made of rows


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedBatch:
    """One verification case: a tower's inputs, and a name for the property that they test."""

    name: str
    inputs: dict[str, Tensor]
    note: str = ""  # how the rows were changed, if at all
    # Its rows hold more than any real row does, or larger numbers, of what nothing bounds: a model need not
    # compute that.
    beyond_rows: bool = False

    def count_values(self) -> int:
        """Return the number of values of all inputs."""
        return sum(tensor.numel() for tensor in self.inputs.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Real rows of one tower's features, from which tensors are made on demand."""

    uri: str
    sha256: str  # digest of the files that were read
    features: Sequence[Feature]
    columns: Mapping[str, Ragged]
    known_ids: Mapping[str, Ids] = field(default_factory=dict)  # of features whose table has a map of ids

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def tensors(self, plan: DimPlan) -> dict[str, Tensor]:
        return to_tensors(self.columns, self.features, plan)

    def select(self, rows: Sequence[int] | Counts) -> "Rows":
        return self.with_columns({name: column.select(rows) for name, column in self.columns.items()})

    def row(self, index: int) -> "Rows":
        return self.select([index])

    def take(self, count: int) -> "Rows":
        """Return the first `count` rows, repeated from the start if there are fewer."""
        return self.within(count).select(np.arange(count) % len(self))

    def within(self, count: int) -> "Rows":
        """Return the rows, cut to their share of what fits into a batch of `count`, if they hold more.

        Long rows, repeated thousands of times, would fill the memory.
        """
        held = sum(len(column.values) for column in self.columns.values())
        if held * count <= _BATCH_VALUES * len(self):
            return self
        share = max(1, _BATCH_VALUES // (count * len(self.features)))
        columns = {f.name: self.columns[f.name] for f in [*self.sequences, *self.multivalued]}
        for feature in self.sequences:
            if feature.is_multivalued:
                columns[feature.name] = columns[feature.name].cut_elements(1)
        return self.with_columns({name: column.cut(share) for name, column in columns.items()})

    @cached_property
    def longest(self) -> int:
        """The number of the row with the most events, over all its sequences."""
        events = np.zeros(len(self), dtype=np.int64)
        for feature in self.sequences:
            events += self.columns[feature.name].per_row
        return int(events.argmax())

    @property
    def sequences(self) -> list[Feature]:
        return [feature for feature in self.features if feature.is_sequence]

    @property
    def multivalued(self) -> list[Feature]:
        """The multi-valued features outside sequences."""
        return [feature for feature in self.features if feature.is_multivalued and not feature.is_sequence]

    @property
    def every_multivalued(self) -> list[Feature]:
        """All multi-valued features, in sequences too."""
        return [feature for feature in self.features if feature.is_multivalued]

    @property
    def dense(self) -> list[Feature]:
        """The features of numbers, which are not looked up."""
        return [feature for feature in self.features if not feature.is_sparse]

    def without_history(self) -> "Rows":
        """Return the rows with every sequence emptied."""
        return self.resize(self.sequences, np.zeros(len(self), dtype=np.int64))

    def resize(self, features: Sequence[Feature], per_row: Counts) -> "Rows":
        """Return the rows with other numbers of elements of these features, repeated from the real ones."""
        return self.with_columns({f.name: resize(self.columns[f.name], f, per_row) for f in features})

    def with_other_weights(self) -> "Rows":
        """Return the rows with other weights of ids, each unlike its neighbours': some 0, some negative."""
        columns = {f.name: self.columns[f.name] for f in self.features if f.weighted}
        return self.with_columns({name: column.with_other_weights() for name, column in columns.items()})

    def with_other_numbers(self, features: Sequence[Feature], real: "Rows") -> "Rows":
        """Return the rows with values of these dense features beyond those of `real` ones, in half of all."""
        columns: dict[str, Ragged] = {}
        for number, feature in enumerate(features):
            largest = float(np.abs(real.columns[feature.name].values).max(initial=0)) or 1.0
            columns[feature.name] = self.columns[feature.name].with_other_numbers(largest, number)
        return self.with_columns(columns)

    def cut(self) -> "Rows":
        """Return the rows, cut to the numbers of events and values that the config declares."""
        columns = dict(self.columns)
        for feature in self.sequences:
            assert feature.sequence is not None
            if feature.sequence.length:
                columns[feature.name] = columns[feature.name].cut(feature.sequence.length)
            if feature.is_multivalued and feature.value_dim:
                columns[feature.name] = columns[feature.name].cut_elements(feature.value_dim)
        for feature in self.multivalued:
            if feature.value_dim:
                columns[feature.name] = columns[feature.name].cut(feature.value_dim)
        return replace(self, columns=columns)

    def with_columns(self, columns: Mapping[str, Ragged]) -> "Rows":
        """Return the rows with other columns in the place of those of the same names."""
        return replace(self, columns={**self.columns, **columns})


def read_rows(
    uri: str, features: Sequence[Feature], *, limit: int = _ROWS_READ, most_values: int = _VALUES_READ
) -> Rows:
    """Read and check the first `limit` rows of `uri`, only the columns that `features` need.

    Fewer are read if their values are more than `most_values`.

    Raises:
        SourceNotFound: the URI names no parquet file.
        InvalidRows: a file, column or row cannot be used.
    """
    source = open_parquet(uri)
    parts: list[dict[str, Ragged]] = []
    files: dict[str, None] = {}
    missing = limit
    for batch in source.batches([feature.name for feature in features]):
        table = batch.table.slice(0, missing)
        parts.append(read_features(table, features, where=batch.where, first_row=batch.first_row))
        files[batch.where] = None
        missing -= table.num_rows
        most_values -= sum(len(column.values) for column in parts[-1].values())
        if not missing or most_values <= 0:
            break
    return Rows(
        uri=uri,
        sha256=source.sha256(files),
        features=tuple(features),
        columns={f.name: concatenate([part[f.name] for part in parts]) for f in features},
    )


def named_batch(name: str, rows: Rows, plan: DimPlan, note: str = "") -> NamedBatch:
    """Make a case of these rows, cut to the lengths that the config declares if they exceed the plan."""
    inputs = rows.tensors(plan)
    if exceeds_plan(inputs, plan):
        inputs = rows.cut().tensors(plan)
        note = "; ".join(filter(None, [note, "histories cut to the declared length"]))
    return NamedBatch(name=name, inputs=inputs, note=note)


def exceeds_plan(inputs: Mapping[str, Tensor], plan: DimPlan) -> bool:
    """Return whether any size is below or above the bounds of the plan."""
    sizes = sizes_of(plan, {name: tensor.shape for name, tensor in inputs.items()})
    bounds = ((size, plan.dim(name)) for name, size in sizes.items())
    return any(size < dim.low or (dim.high is not None and size > dim.high) for size, dim in bounds)


def add_sizes(remainders: Remainders, inputs: Mapping[str, Tensor], plan: DimPlan) -> None:
    """Add the size of each dim, and that of the longest row where it is divided among rows."""
    for name, size in sizes_of(plan, {name: tensor.shape for name, tensor in inputs.items()}).items():
        remainders.add(name, [size])
        share = plan.dim(name).share
        if share is not None and len(lengths := inputs[share.lengths]):
            remainders.add(longest_of(name), [int(lengths.max())])


def longest_of(dim: str) -> str:
    """Return the name of a dim's largest part in a row, to which rows may be padded."""
    return f"{dim} of the longest"


def resize(column: Ragged, feature: Feature, per_row: Counts) -> Ragged:
    """Return a feature's column with other numbers of elements per row."""
    return column.resize(per_row, width=1 if feature.is_multivalued else feature.value_dim)


def group_by_sequence(features: Sequence[Feature]) -> dict[str, list[Feature]]:
    """Group features by the name of their sequence; the features of a sequence have equal lengths."""
    siblings: dict[str, list[Feature]] = {}
    for feature in features:
        assert feature.sequence is not None
        siblings.setdefault(feature.sequence.name, []).append(feature)
    return siblings


def dim_of(feature: Feature, plan: DimPlan, *, elements: bool = False) -> str:
    """Return the dim of a feature's values, or of its elements: the events of its sequence."""
    tensor = "key_lengths" if elements and feature.is_multivalued else "values"
    planned = plan.input_filled_with(f"{feature.name}.{tensor}")
    axis = planned.shape[0] if planned else None
    assert isinstance(axis, str)
    return axis
