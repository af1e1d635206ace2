"""Wrong rows that a rank wrote are found, even where no sample row looks them up."""

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.checkpoint.read import open_checkpoint
from exporter.construction.open_blueprint import open_blueprint
from exporter.distributed.ranks import Ranks
from exporter.readback.errors import WeightsDiffer
from exporter.readback.tower_weights import TowerWeights
from exporter.shards.lookup import RowFiles
from exporter.shards.rank import write_tables
from exporter.shards.read_back import read_back_rows
from exporter.shards.verify import WrittenShards, verify_lookups
from exporter.stages import no_progress
from tests.exporter.shards.conftest import FIXTURES, order_of, spec_of

MODEL = "dlrm_hstu_sharded"
Try = Callable[[int], None]  # of ranks' second one, when a row of its largest table was damaged


@pytest.fixture(params=["fp32", "int8"])
def try_again(request: pytest.FixtureRequest, tmp_path: Path) -> Try:
    spec = spec_of(MODEL, tmp_path, tables={"layout": "sharded", "dtype": request.param})
    order, local = order_of(spec, tmp_path, Ranks(rank=1, size=2)), tmp_path / "rows"
    shares = write_tables(order, local, no_progress).shards
    blueprint, checkpoint = (
        open_blueprint(order.planned, spec, order.config_text),
        open_checkpoint(FIXTURES / MODEL / "model.ckpt-0"),
    )
    tower = blueprint.build()
    filled = blueprint.fill(tower, checkpoint)

    def damaged(row: int) -> None:
        share = max(shares, key=lambda share: share.end)
        piece = RowFiles().piece(local, share.table.weight, share.first, share.meta)
        wrong = piece.raw[row].numpy().tobytes()
        data = local.read_bytes()
        assert data.count(wrong) == 1
        local.write_bytes(data.replace(wrong, bytes(byte ^ 0x41 for byte in wrong)))
        read_back_rows(shares, local, TowerWeights(filled=filled), title=tower.title)

    return damaged


@pytest.mark.parametrize("row", [0, -1])
def test_a_damaged_row_of_the_rank_is_reported(row: int, try_again: Try) -> None:
    with pytest.raises(WeightsDiffer, match=r"video_id_emb.weight: row \d+, column 0: .* was written, and"):
        try_again(row)


def test_rows_beyond_real_ones_are_no_case_where_eager_does_not_look_them_up(tmp_path: Path) -> None:
    spec = spec_of(MODEL, tmp_path, tables={"layout": "sharded"})
    order, local = order_of(spec, tmp_path, Ranks(rank=1, size=2)), tmp_path / "rows"
    shares = write_tables(order, local, no_progress).shards
    blueprint = open_blueprint(order.planned, spec, order.config_text)
    checkpoint = open_checkpoint(FIXTURES / MODEL / "model.ckpt-0")
    tower = blueprint.build()
    blueprint.fill(tower, checkpoint)
    written = WrittenShards(shares, checkpoint, local)
    every_case = verify_lookups(tower, blueprint, written, spec).cases
    tower.served.limit_rows({"user_id.lengths": 3})  # as a model that refuses what its config does not bound
    report = verify_lookups(tower, blueprint, written, spec)
    assert 0 < report.cases < every_case
    assert report.largest_difference == 0.0
