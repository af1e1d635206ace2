"""Encode rows of a parquet table as the tensors that a tower takes."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from exporter.config.schema import Feature
from exporter.data.column import ColumnPlace, read_column
from exporter.data.ragged import Ragged
from exporter.dims.plan import DimPlan, TensorInput
from exporter.dims.sizes import sizes_of
from exporter.errors import InvalidRows


def encode(
    table: pa.Table, features: Sequence[Feature], plan: DimPlan, *, where: str, first_row: int = 0
) -> dict[str, Tensor]:
    """Return the tensors of all rows, keyed and ordered as `plan.inputs`.

    `where` is the rows' file and `first_row` the number of the first of them there, for errors.

    Raises:
        InvalidRows: naming file, column, row (counted from 0) and value; or the rows together
            exceed what the plan lets one call take.
    """
    tensors = to_tensors(read_features(table, features, where=where, first_row=first_row), features, plan)
    for name, size in _exceeding(tensors, plan):
        dim = plan.dim(name)
        raise InvalidRows(
            f"{where}: rows {first_row} to {first_row + table.num_rows - 1} have {size} for dim {name} "
            f"({dim.reason}), more than the {dim.high} that one call takes",
            hint="pass fewer rows per call, or export with a larger max_batch_size",
            where=where,
        )
    return tensors


def encode_in_calls(
    table: pa.Table, features: Sequence[Feature], plan: DimPlan, *, where: str, first_row: int = 0
) -> Iterator[dict[str, Tensor]]:
    """Yield the tensors of the rows, in order, for as many calls as the plan's bounds make necessary."""
    tensors = to_tensors(read_features(table, features, where=where, first_row=first_row), features, plan)
    if not _exceeding(tensors, plan):
        yield tensors
    elif table.num_rows == 1:
        yield encode(table, features, plan, where=where, first_row=first_row)
    else:
        half = table.num_rows // 2
        yield from encode_in_calls(table.slice(0, half), features, plan, where=where, first_row=first_row)
        rest = table.slice(half)
        yield from encode_in_calls(rest, features, plan, where=where, first_row=first_row + half)


def _exceeding(tensors: Mapping[str, Tensor], plan: DimPlan) -> list[tuple[str, int]]:
    """Return the dims whose size in `tensors` exceeds the plan's bound, with that size."""
    sizes = sizes_of(plan, {name: tensor.shape for name, tensor in tensors.items()})
    return [
        (name, size)
        for name, size in sizes.items()
        if (high := plan.dim(name).high) is not None and size > high
    ]


def read_features(
    table: pa.Table, features: Sequence[Feature], *, where: str, first_row: int = 0
) -> dict[str, Ragged]:
    """Read every feature's values, check them, and compare lengths of features of one sequence."""
    columns: dict[str, Ragged] = {}
    leaders: dict[str, Feature] = {}
    for feature in features:
        place = ColumnPlace(where=where, column=feature.name, first_row=first_row)
        if feature.name not in table.column_names:
            place.refuse("is not in the file", hint="a feature is read from the column of its name")
        columns[feature.name] = read_column(_whole(table, feature.name), feature, place)
        if feature.sequence is not None:
            leader = leaders.setdefault(feature.sequence.name, feature)
            _check_siblings(columns[feature.name], columns[leader.name], leader, place)
    return columns


def to_tensors(
    columns: Mapping[str, Ragged], features: Sequence[Feature], plan: DimPlan
) -> dict[str, Tensor]:
    """Return the features' values as tensors, keyed and ordered as `plan.inputs`."""
    tensors: dict[str, Tensor] = {}
    for feature in features:
        column = columns[feature.name]
        values = column.values if feature.is_sparse else column.values.reshape(-1, feature.value_dim)
        lengths_type = np.int64 if feature.is_sparse else np.int32
        tensors[f"{feature.name}.values"] = torch.from_numpy(values)
        tensors[f"{feature.name}.lengths"] = torch.from_numpy(column.per_row.astype(lengths_type))
        tensors[f"{feature.name}.key_lengths"] = torch.from_numpy(column.per_element)
        if column.weights is not None:
            tensors[f"{feature.name}.weights"] = torch.from_numpy(column.weights)
    return {tensor.name: _as_planned(tensors[tensor.filled_with], tensor) for tensor in plan.inputs}


def _as_planned(values: Tensor, tensor: TensorInput) -> Tensor:
    """Convert values to the planned dtype and width; inputs of TorchEasyRec's models have them already."""
    dtype: torch.dtype = getattr(torch, tensor.dtype)
    width = [axis for axis in tensor.shape[1:] if isinstance(axis, int)]
    return values.to(dtype).reshape(-1, *width)


def _whole(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _check_siblings(column: Ragged, leading: Ragged, leader: Feature, place: ColumnPlace) -> None:
    differ = column.per_row != leading.per_row
    if differ.any():
        row = int(differ.argmax())
        place.refuse(
            f"holds {column.per_row[row]} events, but {leader.name} of the same sequence holds "
            f"{leading.per_row[row]}",
            row=row,
            hint="all features of one sequence describe the same events; write them with equal lengths",
        )
