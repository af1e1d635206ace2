"""Count the values that rows unfold to: a column of a few kilobytes can hold a thousand million."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

_TEXT_BYTES = 2  # of the shortest value in a delimited text, with its delimiter


def count_values(array: pa.Array) -> int:
    """Return the number of values that a column's rows hold at all depths; texts count by their length."""
    kind = array.type
    if isinstance(kind, pa.DictionaryType):
        if not _is_text(kind.value_type):
            return len(array)
        lengths = pc.binary_length(array.dictionary.cast(pa.large_binary())).take(array.indices)
        return max(len(array), (pc.sum(lengths).as_py() or 0) // _TEXT_BYTES)
    if pa.types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    if pa.types.is_struct(kind):
        return max(len(array), sum(count_values(field) for field in array.flatten()))
    if pa.types.is_nested(kind):
        return max(len(array), count_values(array.flatten()))
    return max(len(array), array.nbytes // _TEXT_BYTES) if _is_text(kind) else len(array)


def count_row_values(batch: pa.RecordBatch) -> int:
    """Return the number of values that the rows of all columns hold."""
    return sum(count_values(column) for column in batch.columns)


def split_rows(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order, in batches of at most `most` values; a single row is never split."""
    if batch.num_rows <= 1 or count_row_values(batch) <= most:
        yield batch
        return
    half = batch.num_rows // 2
    yield from split_rows(batch.slice(0, half), most)
    yield from split_rows(batch.slice(half), most)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
