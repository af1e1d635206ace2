"""Lookups in shards are eager's, by the published config alone; shards that cannot be are refused."""

from pathlib import Path

import pytest
import torch

from exporter.config.render import render_pipeline_config
from exporter.data.batch import contradicting_batches, verification_batches
from exporter.dims.plan import plan_dims
from exporter.errors import DimPlanViolated, InvalidArtifact
from exporter.reports.table_files import ShardedTable, TablesFile
from exporter.shards.join import tables_file
from exporter.shards.lookup import build_lookup, read_tables
from exporter.towers.lookup import LookUp, build_eager_lookup
from exporter.towers.view import published_tower
from tests.exporter.shards.conftest import Shard, Sharded

TOWERS = [
    ("hstu_match", 0),
    ("hstu_match", 1),
    ("dlrm_hstu_sharded", 0),
    ("dat", 1),
    ("mind", 0),
    ("multi_tower_din_w", 0),
    ("dbmtl", 0),
    ("dcn_v2", 0),
]


def reference(sharded: Sharded, tables: TablesFile) -> LookUp:
    """As `slipway predict` makes it, of what is published beside the package."""
    size, own = sharded.spec.max_batch_size, sharded.planned.config
    config = published_tower(render_pipeline_config(own), own.name)
    plan = plan_dims(config.pipeline.features, max_batch_size=size)
    return build_lookup(tables, config, plan, sharded.root, max_batch_size=size)


LOW = [
    ("hstu_match", 0, "int8"),
    ("dlrm_hstu_sharded", 0, "int4"),
    ("dbmtl", 0, "int4"),
    ("mind", 0, "fp16"),
    ("dcn_v2", 0, "int8"),
    ("dlrm_hstu_fp16", 0, None),
    ("dlrm_hstu_fp16", 0, "int8"),
    ("wide_and_deep", 0, None),
    ("wide_and_deep", 0, "fp32"),
]


@pytest.mark.parametrize(("model", "tower", "dtype"), [*((*each, "fp32") for each in TOWERS), *LOW])
def test_every_case_is_looked_up_as_eager_does(
    model: str, tower: int, dtype: str | None, shard: Shard
) -> None:
    sharded = shard(model, tower, ranks=3, tables={"layout": "sharded", "dtype": dtype})
    opened = sharded.opened
    looked_up = reference(sharded, tables_file(sharded.planned.name, sharded.made, sharded.spec.tables))
    eager = build_eager_lookup(opened.tower, max_batch_size=sharded.spec.max_batch_size)
    for batch in verification_batches(opened.rows, opened.tower.plan):
        expected, found = eager(batch.inputs), looked_up(batch.inputs)
        assert list(found) == list(expected)
        assert all(torch.equal(found[name], expected[name]) for name in expected), batch.name
    for batch in contradicting_batches(opened.rows, opened.tower.plan):
        with pytest.raises((RuntimeError, DimPlanViolated)):
            looked_up(batch.inputs)


def test_each_rank_has_tried_every_case_itself(shard: Shard) -> None:
    for made in shard("hstu_match", 1, ranks=2).made:
        assert made.report is not None
        assert (made.report.refused, made.report.largest_difference) == (2, 0.0)
        assert made.report.cases > 8 and made.report.own_rows == 1000 and made.report.bytes == 64000


def test_more_rows_than_the_largest_batch_are_refused(shard: Shard) -> None:
    sharded = shard("hstu_match", 1)
    looked_up = reference(sharded, tables_file(sharded.planned.name, sharded.made, sharded.spec.tables))
    rows = torch.ones(33, dtype=torch.int64)
    with pytest.raises(DimPlanViolated, match="batch is 33"):
        looked_up({"video_id.values": rows, "video_id.lengths": rows})


def changed(tables: TablesFile, **changes: object) -> TablesFile:
    first, *others = tables.tables
    return TablesFile(
        tower=tables.tower, tables=(ShardedTable.model_validate({**dict(first), **changes}), *others)
    )


def test_shards_that_leave_out_rows_are_refused(shard: Shard) -> None:
    sharded = shard("hstu_match", 1)
    tables = tables_file(sharded.planned.name, sharded.made, sharded.spec.tables)
    first, second = tables.tables[0].shards
    with pytest.raises(InvalidArtifact, match="table video_id_emb has no row 1000 in its shards"):
        reference(sharded, changed(tables, shards=(first,)))
    moved = second.model_copy(update={"first": 1001})
    with pytest.raises(InvalidArtifact, match="no row 1000"):
        reference(sharded, changed(tables, shards=(first, moved)))


def test_a_table_of_another_shape_or_name_is_refused(shard: Shard) -> None:
    sharded = shard("hstu_match", 1)
    tables = tables_file(sharded.planned.name, sharded.made, sharded.spec.tables)
    with pytest.raises(InvalidArtifact, match="has 7 rows of 16, and the tower reads"):
        reference(sharded, changed(tables, rows=7))
    with pytest.raises(InvalidArtifact, match="there is no table .*video_id_emb.weight"):
        reference(sharded, changed(tables, tensor="another"))


def test_a_file_that_does_not_hold_its_rows_is_refused(shard: Shard) -> None:
    sharded = shard("hstu_match", 1)
    tables = tables_file(sharded.planned.name, sharded.made, sharded.spec.tables)
    first, second = tables.tables[0].shards
    longer = second.model_copy(update={"first": 999}), first.model_copy(update={"end": 999})
    with pytest.raises(InvalidArtifact, match=r"rows-0-of-2.safetensors has float32 \[1000, 16\]"):
        reference(sharded, changed(tables, shards=longer[::-1]))
    outside = first.model_copy(update={"file": "../elsewhere"})
    with pytest.raises(InvalidArtifact, match="could lie outside"):
        reference(sharded, changed(tables, shards=(outside, second)))


def test_what_is_no_description_of_tables_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tables.json").write_text('{"version": 2}')
    with pytest.raises(InvalidArtifact, match="tables.json does not describe tables"):
        read_tables(tmp_path / "tables.json")


def test_a_file_is_mapped_once_for_all_tables_in_it(shard: Shard) -> None:
    sharded = shard("dlrm_hstu_sharded", ranks=3)
    looked_up = reference(sharded, tables_file(sharded.planned.name, sharded.made, sharded.spec.tables))
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(sharded.root) in line]
    assert looked_up is not None and len(mapped) == 3
