"""What a column may look like, and how each thing it may not look like is refused."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from exporter.config.schema import (
    ROWS_OF_CHECKPOINT,
    Feature,
    FeatureKind,
    IdMapKind,
    Sequence,
    TableConfig,
)
from exporter.data.column import ColumnPlace, read_column
from exporter.data.ragged import Ragged, concatenate
from exporter.errors import InvalidPipelineConfig, InvalidRows

PLACE = ColumnPlace(where="rows.parquet", column="x", first_row=100)
_ID = Feature(name="x", bare_name="x", kind=FeatureKind.ID, table=TableConfig(name="t", rows=50, dim=4))
_RAW = Feature(name="x", bare_name="x", kind=FeatureKind.RAW)
_CLICKS = Sequence(name="clicks", length=8, delim=";")
SINGLE_ID = _ID
MULTI_ID = replace(_ID, value_dim=0)
EVENT_ID = replace(_ID, sequence=_CLICKS)
EVENT_TAGS = replace(_ID, sequence=_CLICKS, value_dim=0)
TOKENS = replace(_ID, sequence=Sequence(name="x", length=5, delim="\x03"))
WEIGHTED = replace(_ID, value_dim=0, weighted=True)
EVENT_WEIGHTED = replace(_ID, sequence=_CLICKS, weighted=True)
NUMBER = _RAW
VECTOR = replace(_RAW, value_dim=2)
EVENT_NUMBER = replace(_RAW, sequence=_CLICKS)
EVENT_VECTOR = replace(_RAW, sequence=_CLICKS, value_dim=2)


def read(column: pa.Array, feature: Feature) -> Ragged:
    return read_column(column, feature, PLACE)


def parts(ragged: Ragged) -> tuple[list[float], list[int], list[int]]:
    return ragged.values.tolist(), ragged.per_element.tolist(), ragged.per_row.tolist()


@pytest.mark.parametrize(
    ("column", "feature", "values", "per_row"),
    [
        (pa.array([3, 4]), SINGLE_ID, [3, 4], [1, 1]),
        (pa.array([3.0, 4.0]), SINGLE_ID, [3, 4], [1, 1]),
        (pa.array(["3", "4"]), SINGLE_ID, [3, 4], [1, 1]),
        (pa.array(["3", "4", "3"]).dictionary_encode(), SINGLE_ID, [3, 4, 3], [1, 1, 1]),
        (pa.array(["3", "4"], pa.string_view()), SINGLE_ID, [3, 4], [1, 1]),
        (pa.array(["3;4", ""], pa.string_view()), EVENT_ID, [3, 4], [2, 0]),
        (pa.array([["3"], ["4"]], pa.list_(pa.string_view())), MULTI_ID, [3, 4], [1, 1]),
        (pa.array([3, None]), MULTI_ID, [3], [1, 0]),
        (pa.array(["3\x034", "", None]), MULTI_ID, [3, 4], [2, 0, 0]),
        (pa.array([[3, 4], [], None]), MULTI_ID, [3, 4], [2, 0, 0]),
        (pa.array([[3, 4], [], None, [5]]), EVENT_ID, [3, 4, 5], [2, 0, 0, 1]),
        (pa.array([["3", "4"], ["5"]]), EVENT_ID, [3, 4, 5], [2, 1]),
        (pa.array(["3;4", "", None, "5"]), EVENT_ID, [3, 4, 5], [2, 0, 0, 1]),
        (pa.array([[3, 4], None], pa.list_(pa.int64(), 2)), EVENT_ID, [3, 4], [2, 0]),
        (pa.array([1, 2]), NUMBER, [1, 2], [1, 1]),
        (pa.array(["1.5\x032", "-1\x031e3"]), VECTOR, [1.5, 2, -1, 1000], [2, 2]),
        (pa.array([[1.5, 2.0]]), VECTOR, [1.5, 2], [2]),
        (pa.array([[1652022076]]), EVENT_NUMBER, [1652022016], [1]),
        (pa.array([[[1.0, 2.0], [3.0, 4.0]], []]), EVENT_VECTOR, [1, 2, 3, 4], [2, 0]),
        (pa.nulls(2), EVENT_ID, [], [0, 0]),
    ],
)
def test_reads(column: pa.Array, feature: Feature, values: list[float], per_row: list[int]) -> None:
    ragged = read(column, feature)
    assert ragged.values.dtype == (np.int64 if feature.is_sparse else np.float32)
    assert (ragged.values.tolist(), ragged.per_row.tolist()) == (values, per_row)


@pytest.mark.parametrize("column", [[[[1, 2], [], [3]], []], ["1\x032;;3", ""]])
def test_events_may_hold_any_number_of_values(column: list[object]) -> None:
    assert parts(read(pa.array(column), EVENT_TAGS)) == ([1, 2, 3], [2, 0, 1], [3, 0])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[(3, 0.5), (4, 2.0)], None, [], [(5, 1.0)]], pa.map_(pa.int64(), pa.float32())),
        pa.array([["3:0.5", "4:2"], None, [], ["5:1e0"]]),
        pa.array(["3:.5\x034:2.0", None, "", "5:1"]),
    ],
    ids=["maps", "lists", "strings"],
)
def test_ids_come_with_their_weights(column: pa.Array) -> None:
    ragged = read(column, WEIGHTED)
    assert parts(ragged) == ([3, 4, 5], [1, 1, 1], [2, 0, 0, 1])
    assert ragged.weights is not None
    assert ragged.weights.dtype == np.float32
    assert ragged.weights.tolist() == [0.5, 2.0, 1.0]


def test_events_come_with_their_weights() -> None:
    ragged = read(pa.array(["3:0.5;4:2", ""]), EVENT_WEIGHTED)
    assert parts(ragged) == ([3, 4], [1, 1], [2, 0])
    assert ragged.weights is not None
    assert ragged.weights.tolist() == [0.5, 2.0]


def test_weights_follow_their_ids() -> None:
    ragged = concatenate([read(pa.array(["3:0.5\x034:2", "5:3"]), WEIGHTED)] * 2)
    chosen = ragged.select([1, 0]).resize(np.array([1, 4]))
    assert chosen.weights is not None
    assert (chosen.values.tolist(), chosen.weights.tolist()) == ([5, 3, 4, 5, 3], [3.0, 0.5, 2.0, 3.0, 0.5])


def test_the_fill_value_has_weight_one() -> None:
    ragged = read(pa.array(["", "3:0.5"]), replace(WEIGHTED, fill_value="7\x038"))
    assert ragged.weights is not None
    assert (ragged.values.tolist(), ragged.weights.tolist()) == ([7, 8, 3], [1.0, 1.0, 0.5])


@pytest.mark.parametrize("empty", [pa.array([None, None]), pa.array(["", ""]), pa.array([[], []])])
def test_rows_without_ids_have_no_weights(empty: pa.Array) -> None:
    ragged = read(empty, WEIGHTED)
    assert ragged.weights is not None
    assert ragged.weights.tolist() == []


@pytest.mark.parametrize(
    ("column", "feature", "fill", "expected"),
    [
        ([3, None], SINGLE_ID, "7", ([3, 7], [1, 1], [1, 1])),
        (["", "3"], MULTI_ID, "7\x038", ([7, 8, 3], [1, 1, 1], [2, 1])),
        ([[], [3, 4], None], EVENT_ID, "7", ([7, 3, 4, 7], [1, 1, 1, 1], [1, 2, 1])),
        ([None, [[3], [4]]], EVENT_TAGS, "7\x038", ([7, 8, 3, 4], [2, 1, 1], [1, 2])),
        ([None, 1.5], NUMBER, "0.5", ([0.5, 1.5], [1, 1], [1, 1])),
        (["", "1;2"], EVENT_NUMBER, "0.5", ([0.5, 1, 2], [1, 1, 1], [1, 2])),
        ([3, None], MULTI_ID, "7\x038", ([3, 7], [1, 1], [1, 1])),
        ([1.5, None], NUMBER, "0.5\x032", ([1.5, 0.5], [1, 1], [1, 1])),
        ([[], [3]], EVENT_TAGS, "7\x038", ([7, 8, 3], [1, 1, 1], [2, 1])),
        (["", "3"], EVENT_TAGS, "7\x038", ([7, 8, 3], [2, 1], [1, 1])),
        (["", "3\x034"], TOKENS, "7\x038", ([7, 8, 3, 4], [1, 1, 1, 1], [2, 2])),
        ([[], [3]], TOKENS, "7\x038", ([7, 8, 3], [1, 1, 1], [2, 1])),
        ([None, 3], TOKENS, "7\x038", ([7, 3], [1, 1], [1, 1])),
        ([None, [[1, 2]]], EVENT_VECTOR, "3\x034", ([3, 4, 1, 2], [2, 2], [1, 1])),
    ],
)
def test_the_fill_value_stands_in_for_an_empty_row(
    column: list[object], feature: Feature, fill: str, expected: tuple[list[float], list[int], list[int]]
) -> None:
    assert parts(read(pa.array(column), replace(feature, fill_value=fill))) == expected


@pytest.mark.parametrize(
    ("column", "feature", "row", "says"),
    [
        ([3, 50], SINGLE_ID, 101, "50 is not in 0 to 49, the rows of table t"),
        ([3, -1], SINGLE_ID, 101, "-1 is not in 0 to 49"),
        ([[3], [4, 50]], EVENT_ID, 101, "50 is not in 0 to 49"),
        ([[[3], []], [[4, 50]]], EVENT_TAGS, 101, "50 is not in 0 to 49"),
        (["3", "3;-4"], EVENT_ID, 101, "-4 is not in"),
        ([2.0, 2.5], SINGLE_ID, 101, "2.5 is not an id"),
        ([2.0, float("nan")], SINGLE_ID, 101, "nan is not an id"),
        (["3", "x"], SINGLE_ID, 101, "'x' is not an id"),
        (["3", "0x10"], SINGLE_ID, 101, "'0x10' is not an id"),
        (["3", "9" * 30], SINGLE_ID, 101, "is not an id"),
        (["3;4", "3|4"], EVENT_ID, 101, r"'3\|4' is not an id"),
        ([3, None], SINGLE_ID, 101, "holds no value, feature x takes 1 value"),
        ([[3], [3, 4]], SINGLE_ID, 101, "the row holds 2 values"),
        ([[3], [3, None]], EVENT_ID, 101, "an event holds no value"),
        (["3;4", "3;;4"], EVENT_ID, 101, "an event holds no value"),
        ([[[3]], [[4, None]]], EVENT_TAGS, 101, "null inside a list"),
        (["3:1", "3"], WEIGHTED, 101, "'3' is not an id with its weight"),
        (["3:1", "3:x"], WEIGHTED, 101, "'3:x' is not an id with its weight"),
        (["3:1", "50:1"], WEIGHTED, 101, "50 is not in 0 to 49"),
        (["3:1", "3:1e39"], WEIGHTED, 101, "is not a finite"),
        ([["3:1"], ["3:1", None]], WEIGHTED, 101, "null is not an id with its weight"),
        ([1.0, None], NUMBER, 101, "holds no value"),
        ([1.0, float("nan")], NUMBER, 101, "nan is not a finite"),
        ([1.0, 1e39], NUMBER, 101, r"1e\+39 is not a finite"),
        (["1", "nan"], NUMBER, 101, "'nan' is not a number"),
        (["1", "1e39"], NUMBER, 101, "is not a finite"),
        ([[1.0, 2.0], [1.0]], VECTOR, 101, "holds 1 value, feature x takes 2 values"),
        ([[1.0], [float("inf")]], EVENT_NUMBER, 101, "inf is not a finite"),
        ([[[1.0, 2.0]], [[1.0, 2.0], [3.0]]], EVENT_VECTOR, 101, "an event holds 1 value"),
    ],
)
def test_names_the_row_and_the_value(column: list[object], feature: Feature, row: int, says: str) -> None:
    with pytest.raises(InvalidRows, match=f"^rows.parquet, column x, row {row}: .*{says}") as caught:
        read(pa.array(column), feature)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("column", "feature"),
    [
        (pa.array([True]), SINGLE_ID),
        (pa.array([{"a": 1}]), SINGLE_ID),
        (pa.array([0], pa.timestamp("s")), NUMBER),
        (pa.array([[[1]]]), SINGLE_ID),
        (pa.array([1]), EVENT_ID),
        (pa.array([[1]]), WEIGHTED),
        (pa.array([[(1, 2.0)]], pa.map_(pa.int64(), pa.float32())), MULTI_ID),
        (pa.array([[{"id": 1}]]), WEIGHTED),
    ],
)
def test_names_a_type_it_cannot_use(column: pa.Array, feature: Feature) -> None:
    with pytest.raises(InvalidRows, match="^rows.parquet, column x: (is|holds values) of type"):
        read(column, feature)


@pytest.mark.parametrize("fill", ["50", "x"])
def test_a_fill_value_must_fit_the_table(fill: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match="fg_encoded_default_value"):
        read(pa.array([None, 1]), replace(SINGLE_ID, fill_value=fill))


def _random_lists(rng: random.Random, draw: Callable[[], object]) -> list[list[object] | None]:
    lengths = [rng.choice([0, 1, 2, 9]) for _ in range(30)]
    return [[draw() for _ in range(n)] if n or rng.random() < 0.5 else None for n in lengths]


@pytest.mark.parametrize("seed", range(10))
def test_lists_and_delimited_strings_read_alike(seed: int) -> None:
    rng = random.Random(seed)
    for feature, draw in (
        (EVENT_ID, lambda: rng.randrange(50)),
        (EVENT_NUMBER, lambda: rng.choice([rng.randrange(2**40), rng.uniform(-1e6, 1e6)])),
    ):
        lists = _random_lists(rng, draw)
        strings = [None if row is None else ";".join(map(str, row)) for row in lists]
        as_lists = [None if row is None else [float(str(v)) for v in row] for row in lists]
        assert parts(read(pa.array(strings), feature)) == parts(read(pa.array(as_lists), feature))


@pytest.mark.parametrize("seed", range(10))
def test_nested_lists_and_doubly_delimited_strings_read_alike(seed: int) -> None:
    rng = random.Random(seed)

    def draw_event() -> list[int]:
        return [rng.randrange(50) for _ in range(rng.randrange(1, 4))]

    rows = [[draw_event() for _ in range(rng.randrange(4))] for _ in range(30)]
    strings = [";".join("\x03".join(map(str, event)) for event in row) for row in rows]
    nested = pa.array(rows, pa.list_(pa.list_(pa.int32())))
    assert parts(read(pa.array(strings), EVENT_TAGS)) == parts(read(nested, EVENT_TAGS))


UNSIZED = replace(MULTI_ID, table=TableConfig(name="t", rows=ROWS_OF_CHECKPOINT, dim=4))
HASHED = replace(MULTI_ID, table=TableConfig(name="t", rows=5, dim=4, id_map=IdMapKind.ZCH))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[2**63 - 1, -(2**63)], [7]]),
        pa.array([["9223372036854775807", "-9223372036854775808"], ["7"]]),
        pa.array(["9223372036854775807\x03-9223372036854775808", "7"]),
    ],
)
def test_ids_of_a_map_are_any_of_64_bits(column: pa.Array) -> None:
    assert read(column, HASHED).values.tolist() == [2**63 - 1, -(2**63), 7]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (pa.array([1, 2**63], pa.uint64()), "9223372036854775808"),
        (pa.array(["1", "9223372036854775808"]), "'9223372036854775808'"),
        (pa.array(["1", "-9223372036854775809"]), "'-9223372036854775809'"),
        (pa.array([1.0, 2.0**63]), "9.223372036854776e"),
        (pa.array([1.0, float("nan")]), "nan"),
        (pa.array([1.0, float("inf")]), "inf"),
        (pa.array([1.0, float("inf")], pa.float16()), "inf"),
    ],
)
@pytest.mark.parametrize("feature", [HASHED, UNSIZED], ids=["by a map", "by rows of the checkpoint"])
def test_larger_ids_are_refused(column: pa.Array, value: str, feature: Feature) -> None:
    with pytest.raises(InvalidRows, match=f"row 101: {value}.* is not (an id|a row number)"):
        read(column, feature)
