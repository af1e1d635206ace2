"""What is asked for beside the item package is found possible, or refused by name, before it is compiled."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exporter.errors import InvalidRows, InvalidSpec
from exporter.items.plan import Items, open_items, plan_vectors
from exporter.manifest import Metric, TensorEntry
from exporter.options.index_spec import FlatIndex, IvfFlatIndex
from exporter.spec import ExportSpec, TowerName
from exporter.towers.plan import PlannedTower, plan_towers
from tests.exporter.towers.test_plan import FIXTURES


@pytest.fixture
def spec(tmp_path: Path) -> ExportSpec:
    pq.write_table(pa.table({"video_id": range(300)}), tmp_path / "items.parquet")
    return ExportSpec(
        config=(FIXTURES / "hstu_match" / "pipeline.config").read_text(),
        checkpoint_uri="unread",
        item_input_uri=str(tmp_path / "items.parquet"),
        output_uri="unwritten",
        towers=(TowerName.ITEM,),
        materialise_items=True,
        item_index=IvfFlatIndex(),
    )


def planned(spec: ExportSpec) -> PlannedTower:
    assert spec.config is not None
    return plan_towers(spec, spec.config)[0]


@pytest.fixture
def items(spec: ExportSpec, tmp_path: Path) -> Items:
    opened = open_items(planned(spec), spec, tmp_path)
    assert opened is not None
    return opened


def output(name: str = "item_tower_emb", dtype: str = "float32", *shape: int | str) -> TensorEntry:
    return TensorEntry(name=name, dtype=dtype, shape=shape or ("batch", 32))


def test_one_vector_per_item_is_wanted(items: Items) -> None:
    wanted = plan_vectors(items, (output(),))
    assert (wanted.output, wanted.width) == ("item_tower_emb", 32)
    assert wanted.index == IvfFlatIndex(nlist=7, nprobe=7)
    assert (items.ids.rows, items.ids.can_label_index, items.metric) == (300, True, Metric.COSINE)


@pytest.mark.parametrize(
    "outputs",
    [
        (output("a"), output("b")),
        (output("interests", "float32", "batch", 4, 32),),
        (output("score", "float32", "batch"),),
        (output("codes", "int64"),),
        (output("vectors", "float32", "seq_clicks", 32),),
    ],
)
def test_anything_else_is_refused_with_what_the_tower_returns(
    items: Items, outputs: tuple[TensorEntry, ...]
) -> None:
    with pytest.raises(
        InvalidSpec, match=rf"not return one vector per item, but {outputs[0].name}"
    ) as raised:
        plan_vectors(items, outputs)
    assert raised.value.where == "materialise_items"


def test_who_does_not_ask_gets_none(spec: ExportSpec, tmp_path: Path) -> None:
    plain = spec.model_copy(update={"materialise_items": False, "item_index": None})
    assert open_items(planned(plain), plain, tmp_path) is None


def test_a_column_that_is_not_there_is_named(spec: ExportSpec, tmp_path: Path) -> None:
    other = spec.model_copy(update={"item_id_column": "asin", "item_index": FlatIndex()})
    with pytest.raises(InvalidRows, match="no column 'asin'"):
        open_items(planned(other), other, tmp_path)
