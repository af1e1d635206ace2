"""Columns beside the features: labels, weights and groups of held-out rows."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from exporter.data.column import ColumnPlace
from exporter.release.estimates import Array, Codes
from exporter.release.labelled_rows import LabelledBatch


def read_numbers(batch: LabelledBatch, column: str) -> tuple[Array, NDArray[np.int64] | None]:
    """Return the numbers of a column, and how many each row has where rows are lists.

    Raises:
        InvalidRows: naming file, column and row of what is null, not finite, or no number.
    """
    place = ColumnPlace(where=batch.where, column=column, first_row=batch.first_row)
    array = whole(batch.table, column)
    per_row = None
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        per_row = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        array = array.flatten()
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or _is_bool(array)):
        place.refuse(f"is of type {array.type}, not of numbers", hint="labels and weights are numbers")
    numbers: Array = array.cast(pa.float64()).to_numpy(zero_copy_only=False)  # null becomes NaN
    bad = ~np.isfinite(numbers)
    if bad.any():
        first = int(bad.argmax())
        row = first if per_row is None else int(np.repeat(np.arange(len(per_row)), per_row)[first])
        place.refuse(
            "holds no finite number",
            row=row,
            hint="give every held-out row a label and a weight, or leave the row out",
        )
    return numbers, per_row


def read_group(batch: LabelledBatch, column: str) -> pa.Array:
    """Return the group of each row; of a list its first value, as TorchEasyRec takes it.

    Raises:
        InvalidRows: naming file and column, the values are no integers or texts.
    """
    array = whole(batch.table, column)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        offsets = array.offsets.to_numpy()
        first = np.where(np.diff(offsets) > 0, offsets[:-1], -1)
        array = array.values.take(pa.array(first, mask=first < 0))
    try:
        return array.cast(pa.string())
    except pa.ArrowException:
        place = ColumnPlace(where=batch.where, column=column, first_row=batch.first_row)
        place.refuse(f"is of type {array.type}, which groups no rows", hint="group rows by integers or texts")


def number_groups(arrays: Sequence[pa.Array]) -> Codes:
    """Return a number for each row's group; rows without one are a group of their own."""
    array = pa.concat_arrays(arrays)
    codes: Codes = array.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return codes


def whole(table: pa.Table, column: str) -> pa.Array:
    """Return a column as one array, decoded."""
    array = pa.concat_arrays(table.column(column).chunks)
    return array.dictionary_decode() if isinstance(array.type, pa.DictionaryType) else array


def _is_bool(array: pa.Array) -> bool:
    return bool(pa.types.is_boolean(array.type))


def split_lists(batch: LabelledBatch, column: str) -> tuple[pa.Array, Codes]:
    """Return the values of a column and the row of each: one per row, or those of its list."""
    array = whole(batch.table, column)
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return array, np.arange(len(array))
    per_row = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return array.flatten(), np.repeat(np.arange(len(array)), per_row)
