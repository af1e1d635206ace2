"""The made-up catalogue is one that an export takes."""

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measure.catalogue import write_config, write_items
from exporter.spec import ExportSpec, TowerName
from exporter.towers.plan import plan_towers


def test_the_item_tower_reads_buckets_and_authors(tmp_path: Path) -> None:
    write_config(tmp_path / "pipeline.config")
    spec = ExportSpec(
        config=(tmp_path / "pipeline.config").read_text(),
        checkpoint_uri="unread",
        item_input_uri="unread",
        output_uri="unwritten",
        towers=(TowerName.ITEM,),
    )
    assert spec.config is not None
    [item] = plan_towers(spec, spec.config)
    tables = {feature.name: feature.table for feature in item.config.pipeline.features}
    rows = {name: table and table.rows for name, table in tables.items()}
    assert rows == {"video_id": 1_000_000, "author_id": 100_000}


def test_no_item_comes_twice(tmp_path: Path) -> None:
    write_items(tmp_path / "items.parquet", 1_100_000)
    table = pq.read_table(tmp_path / "items.parquet")
    assert pc.count_distinct(table.column("item_id")).as_py() == table.num_rows == 1_100_000
    assert pc.min(table.column("item_id")).as_py() >= 0
    assert pc.max(table.column("author_id")).as_py() < 100_000
