"""Features of one file are checked against each other and against the plan's bounds."""

import pyarrow as pa
import pytest

from exporter.config.schema import Feature, FeatureKind, Sequence, TableConfig
from exporter.data.encode import encode, encode_in_calls
from exporter.dims.plan import plan_dims
from exporter.errors import InvalidRows

_CLICKS = Sequence(name="clicks", length=2, delim=";")
ITEM = Feature(
    name="clicks__item",
    bare_name="item",
    kind=FeatureKind.ID,
    sequence=_CLICKS,
    grouped=True,
    table=TableConfig(name="item_emb", rows=50, dim=4),
)
PRICE = Feature(
    name="clicks__price",
    bare_name="price",
    kind=FeatureKind.RAW,
    sequence=_CLICKS,
    grouped=True,
)
FEATURES = [ITEM, PRICE]
PLAN = plan_dims(FEATURES, max_batch_size=2)


def test_a_row_may_be_longer_than_declared_while_the_total_holds() -> None:
    table = pa.table({"clicks__item": [[1, 2, 3], [4]], "clicks__price": [[1, 2, 3], [4]]})
    assert encode(table, FEATURES, PLAN, where="f")["clicks__item.lengths"].tolist() == [3, 1]


def test_rows_beyond_the_plan_are_refused() -> None:
    table = pa.table({"clicks__item": [[1, 2, 3], [4, 5]], "clicks__price": [[1, 2, 3], [4, 5]]})
    with pytest.raises(InvalidRows, match=r"f: rows 7 to 8 have 5 for dim seq_clicks .* more than the 4"):
        encode(table, FEATURES, PLAN, where="f", first_row=7)


def test_rows_beyond_the_plan_are_divided_into_calls_that_fit() -> None:
    items = [[1, 2, 3], [4, 5], [], [6]]
    table = pa.table({"clicks__item": items, "clicks__price": items})
    calls = encode_in_calls(table, FEATURES, plan_dims(FEATURES, max_batch_size=2), where="f")
    assert [call["clicks__item.values"].tolist() for call in calls] == [[1, 2, 3], [4, 5], [6]]


def test_one_row_beyond_the_plan_is_refused_by_its_number() -> None:
    table = pa.table({"clicks__item": [[1], [1, 2, 3, 4, 5]], "clicks__price": [[1], [1, 2, 3, 4, 5]]})
    with pytest.raises(InvalidRows, match="f: rows 1 to 1 have 5 for dim seq_clicks"):
        list(encode_in_calls(table, FEATURES, PLAN, where="f"))


def test_siblings_of_unequal_length_are_named() -> None:
    table = pa.table({"clicks__item": [[1], [4, 5]], "clicks__price": [[1], [4]]})
    with pytest.raises(
        InvalidRows, match="f, column clicks__price, row 8: holds 1 events, but clicks__item .* holds 2"
    ):
        encode(table, FEATURES, PLAN, where="f", first_row=7)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InvalidRows, match="f, column clicks__price: is not in the file"):
        encode(pa.table({"clicks__item": [[1]]}), FEATURES, PLAN, where="f")


def test_chunked_and_sliced_tables_encode_like_whole_ones() -> None:
    rows = pa.table({"clicks__item": [[9], [1], [], [2, 3]], "clicks__price": [[9], [1], [], [2, 3]]})
    chunked = pa.concat_tables([rows.slice(1, 2), rows.slice(3)])
    tensors = encode(chunked, FEATURES, plan_dims(FEATURES, max_batch_size=4), where="f")
    assert tensors["clicks__item.values"].tolist() == [1, 2, 3]
    assert tensors["clicks__price.lengths"].tolist() == [1, 0, 2]
