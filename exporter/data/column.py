"""Convert a parquet column into one feature's ragged values, or raise an error that names the row."""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from exporter.config.schema import ROWS_OF_CHECKPOINT, Feature, TableConfig
from exporter.data.ragged import Counts, Ragged, Values
from exporter.errors import InvalidPipelineConfig, InvalidRows

Numbers = NDArray[np.integer[Any]] | NDArray[np.floating[Any]]

_ID = r"^-?[0-9]{1,18}$"
_ANY_ID = r"^-?[0-9]{1,19}$"  # of a table whose map takes ids of any size
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_WEIGHTED_ID = f"{_ANY_ID[:-1]}:{_NUMBER[1:]}"
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, kw_only=True)
class ColumnPlace:
    """The file, column and first row of some rows, for error messages."""

    where: str  # URI of the file
    column: str
    first_row: int

    def refuse(self, problem: str, *, row: int | None = None, hint: str) -> NoReturn:
        at = "" if row is None else f", row {self.first_row + row}"
        raise InvalidRows(f"{self.where}, column {self.column}{at}: {problem}", hint=hint, where=self.where)


def read_column(array: pa.Array, feature: Feature, place: ColumnPlace) -> Ragged:
    """Read a column and check every value. Values are used as they are: nothing is cut or bucketised.

    Accepts numbers, strings of digits, lists of either, lists of lists, and delimited strings; for weighted
    ids also maps, or any of these with "id:weight" in place of an id. Null, "" and [] make an empty row, or
    the feature's `fill_value` (with weight 1) if it has one.

    Raises:
        InvalidRows: naming file, column and row (counted from 0).
    """
    array = _plain(array)
    if pa.types.is_null(array.type):
        array = array.cast(pa.list_(pa.int64()))  # a column that is null in every row has no type
    if feature.sequence is None:
        leaves, per_row = _split(array, feature.separator, place)
        per_element = np.ones(len(leaves), dtype=np.int64)
    else:
        is_tokens = feature.sequence.delim == feature.separator  # of one text, which may have one token
        if not (_is_text(array.type) or _is_list(array.type) or (is_tokens and _is_number(array.type))):
            place.refuse(
                f"is of type {array.type}, one value per row, but {feature.name} is a sequence",
                hint=f"write lists, or strings with {feature.sequence.delim!r} between events",
            )
        elements, per_row = _split(array, feature.sequence.delim, place)
        leaves, per_element = _split(elements, feature.separator, place)
    checked = _Leaves(place, per_element=per_element, per_row=per_row)
    weights = None
    if feature.weighted:
        leaves, weights = checked.split_weights(leaves)
    values = checked.numbers(leaves) if feature.table is None else checked.ids(leaves, feature.table)
    ragged = Ragged(values=values, per_element=per_element, per_row=per_row, weights=weights)
    if feature.fill_value:
        # As TorchEasyRec: a column of one number per row takes the first value; of a list of numbers, and of
        # a text of tokens, every value is an element; of other sequences, all values are one element.
        filler = _filler(feature)[:1] if _is_number(array.type) else _filler(feature)
        ragged = ragged.fill_empty(filler, one_element=_is_nested(array.type, feature))
    _check_counts(ragged, feature, place)
    return ragged


class _Leaves:
    """Turns a column's innermost values into numbers; knows the row of each for errors."""

    def __init__(self, place: ColumnPlace, *, per_element: Counts, per_row: Counts) -> None:
        self._place = place
        self._per_element = per_element
        self._per_row = per_row

    def ids(self, leaves: pa.Array, table: TableConfig) -> NDArray[np.int64]:
        unknown = table.rows == ROWS_OF_CHECKPOINT  # then the package demands that there are such rows
        if table.id_map is not None or unknown:
            self._refuse_large(leaves)
        numbers = self._parse(leaves, pa.int64(), _ID if table.id_map is None else _ANY_ID, "is not an id")
        if pa.types.is_floating(leaves.type):
            whole = np.floor(numbers) == numbers
            self._refuse_first(~whole, numbers, "is not an id", hint="ids are whole numbers")
        if table.id_map is not None:
            return numbers.astype(np.int64)
        bounds = "a row number" if unknown else f"in 0 to {table.rows - 1}, the rows"
        self._refuse_first(
            (numbers < 0) | (not unknown and numbers >= table.rows),
            numbers,
            f"is not {bounds} of table {table.name}",
            hint="correct the row, or train again with a larger table",
        )
        return numbers.astype(np.int64)

    def _refuse_large(self, leaves: pa.Array) -> None:
        """Refuse ids that do not fit into 64 bits; what is no id at all is left for others to refuse."""
        if _is_text(leaves.type):
            long = pc.match_substring_regex(leaves, "^-?[0-9]{19}$").to_numpy(zero_copy_only=False)
            large = np.zeros(len(leaves), dtype=np.bool_)
            for place in np.flatnonzero(long):
                large[place] = int(leaves[int(place)].as_py()) not in _INT64
        elif pa.types.is_floating(leaves.type) or pa.types.is_uint64(leaves.type):
            numbers = leaves.to_numpy(zero_copy_only=False)
            if numbers.dtype == np.float16:  # too short for the bounds
                numbers = numbers.astype(np.float32)
            large = (numbers < _INT64.start) | (numbers >= _INT64.stop)
        else:
            return
        self._refuse_first(large, leaves, "is not an id of 64 bits", hint="ids go from -2^63 to 2^63 - 1")

    def numbers(self, leaves: pa.Array) -> NDArray[np.float32]:
        """Convert to float32 as training does, which rounds Unix seconds to multiples of 128."""
        parsed = self._parse(leaves, pa.float32(), _NUMBER, "is not a number")
        with np.errstate(over="ignore"):  # numbers that do not fit become infinite, and are refused
            numbers = parsed.astype(np.float32)
        self._refuse_first(
            ~np.isfinite(numbers),
            parsed,
            "is not a finite 32-bit number",
            hint="replace NaN and infinities before training and export",
        )
        return numbers

    def split_weights(self, leaves: pa.Array) -> tuple[pa.Array, NDArray[np.float32]]:
        """Split weighted ids into the ids, which are still to be read, and their weights."""
        if pa.types.is_struct(leaves.type) and leaves.type.num_fields == 2:  # the entries of maps
            ids, weights = leaves.flatten()
            return ids, self.numbers(weights)
        if len(leaves) == 0:
            return leaves, np.empty(0, dtype=np.float32)
        if not _is_text(leaves.type):
            self._place.refuse(
                f"holds values of type {leaves.type}, but the feature is weighted",
                hint='write maps of ids to weights, or "id:weight"',
            )
        matches = pc.fill_null(pc.match_substring_regex(leaves, _WEIGHTED_ID), fill_value=False)
        self._refuse_first(
            ~matches.to_numpy(zero_copy_only=False).astype(np.bool_),
            leaves,
            "is not an id with its weight",
            hint='write "id:weight"',
        )
        halves = pc.list_flatten(pc.split_pattern(leaves, ":"))
        return halves[::2], self.numbers(halves[1::2])

    def _parse(self, leaves: pa.Array, kind: pa.DataType, pattern: str, problem: str) -> Numbers:
        missing = leaves.is_null().to_numpy(zero_copy_only=False)
        self._refuse_first(
            missing,
            leaves,
            "inside a list",
            hint="leave the value out, or write a value for it",
        )
        if pa.types.is_null(leaves.type):
            return np.empty(0, dtype=np.int64)
        if _is_text(leaves.type):
            matches = pc.match_substring_regex(leaves, pattern).to_numpy(zero_copy_only=False)
            self._refuse_first(
                ~matches.astype(np.bool_), leaves, problem, hint="check the column and its delimiters"
            )
            leaves = pc.cast(leaves, kind)
        elif not _is_number(leaves.type):
            self._place.refuse(
                f"holds values of type {leaves.type}",
                hint="use one value, a list, or for multi-valued features of a sequence a list of lists",
            )
        values: Numbers = leaves.to_numpy(zero_copy_only=False)
        return values

    def _refuse_first(
        self, wrong: NDArray[np.bool_], values: pa.Array | Numbers, problem: str, *, hint: str
    ) -> None:
        if not wrong.any():
            return
        position = int(wrong.argmax())
        element = int(np.searchsorted(np.cumsum(self._per_element), position, side="right"))
        row = int(np.searchsorted(np.cumsum(self._per_row), element, side="right"))
        value = values[position]
        if isinstance(value, pa.Scalar):
            shown = repr(value.as_py()) if value.is_valid else "null"
        else:
            shown = str(value)
        self._place.refuse(f"{shown} {problem}", row=row, hint=hint)


def _split(array: pa.Array, delim: str, place: ColumnPlace) -> tuple[pa.Array, Counts]:
    """Return the contents of all entries and the count of each; a null or empty string holds nothing."""
    if _is_text(array.type):
        present = pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)
        array = pc.split_pattern(present, delim)
    if pa.types.is_map(array.type):
        entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        array = array.cast(pa.list_(entry))
    if _is_list(array.type):
        counts = pc.fill_null(pc.list_value_length(array), 0)
        return _plain(pc.list_flatten(array)), counts.to_numpy().astype(np.int64)
    if not (_is_number(array.type) or pa.types.is_null(array.type)):
        place.refuse(
            f"is of type {array.type}, which is neither numbers, strings nor lists of them",
            hint="convert the column to int64, float32, string or lists of these (times to Unix seconds)",
        )
    return array.drop_null(), array.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)


def _plain(array: pa.Array) -> pa.Array:
    """Decode dictionaries and string views, which pyarrow's kernels do not take."""
    if isinstance(array.type, pa.DictionaryType):
        array = array.dictionary_decode()
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def _filler(feature: Feature) -> Values:
    """Return the values of `fg_encoded_default_value`, which FG_NONE puts into empty rows."""
    assert feature.fill_value is not None
    texts = feature.fill_value.split(feature.separator)
    try:
        if feature.table is None:
            return np.array([float(text) for text in texts], dtype=np.float32)
        ids = np.array([int(text) for text in texts], dtype=np.int64)
        rows = feature.table.rows
        if feature.table.id_map is None and (
            (ids < 0).any() or (rows != ROWS_OF_CHECKPOINT and (ids >= rows).any())
        ):
            raise ValueError(f"not in 0 to {rows - 1}" if rows else "negative")
    except (ValueError, OverflowError) as error:
        raise InvalidPipelineConfig(
            f"fg_encoded_default_value {feature.fill_value!r} of {feature.name} cannot be used: {error}",
            where=feature.name,
        ) from error
    return ids


def _check_counts(ragged: Ragged, feature: Feature, place: ColumnPlace) -> None:
    """Require `value_dim` values of dense vectors, and one value of single-valued features."""
    if feature.is_multivalued:
        return
    wanted = feature.value_dim
    counts = ragged.per_element if feature.is_sequence else ragged.per_row
    wrong = counts != wanted
    if wrong.any():
        position = int(wrong.argmax())
        place.refuse(
            f"{'an event' if feature.is_sequence else 'the row'} holds {_values(int(counts[position]))}, "
            f"feature {feature.name} takes {_values(wanted)}",
            row=int(np.searchsorted(np.cumsum(ragged.per_row), position, side="right"))
            if feature.is_sequence
            else position,
            hint="correct the row, or set value_dim or fg_encoded_default_value in the pipeline config "
            "(in a declaration shape or fill)",
        )


def _is_nested(kind: pa.DataType, feature: Feature) -> bool:
    """Return whether the values of a row are those of elements, and not elements themselves."""
    if feature.sequence is None:
        return False
    if _is_text(kind):
        return feature.sequence.delim != feature.separator
    return _is_list(kind) and _is_list(kind.value_type)


def _values(count: int) -> str:
    return {0: "no value", 1: "1 value"}.get(count, f"{count} values")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
