"""Every bit of every rank's rows and maps of ids is held against the checkpoint, and so is their index."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch import Tensor

from exporter.checkpoint.safetensors import SafetensorsCheckpoint
from exporter.construction.open_blueprint import open_blueprint
from exporter.construction.sources import fetch_checkpoint_once
from exporter.distributed.ranks import Ranks
from exporter.lowering.tables import fuse_rows
from exporter.readback.errors import WeightsDiffer
from exporter.readback.tower_weights import TowerWeights
from exporter.reports.table_files import ShardedTable, TablesFile
from exporter.shards import write
from exporter.shards.join import tables_file
from exporter.shards.layout import RankTables, rows_path
from exporter.shards.rank import write_tables
from exporter.shards.read_back import read_back_rows, require_compared
from exporter.stages import no_progress
from tests.dynamic_models import spec_for, write_dynamic_checkpoint
from tests.exporter.readback.packages import flipped
from tests.exporter.shards.conftest import Shard, Sharded, order_of


@dataclass(frozen=True, kw_only=True, eq=False)
class RankFile:
    """One rank's file, and what it is compared with."""

    made: RankTables
    local: Path
    weights: TowerWeights

    def read_back(self) -> tuple[int, int]:
        return read_back_rows(self.made.shards, self.local, self.weights, title="user tower")

    def begins(self) -> int:
        """Return the byte at which the rows begin, behind the header."""
        return self.local.stat().st_size - sum(
            meta.nbytes for meta in SafetensorsCheckpoint([self.local]).tensors().values()
        )


def files_of(sharded: Sharded) -> list[RankFile]:
    weights = TowerWeights(filled=sharded.opened.filled)
    ranks = len(sharded.made)
    return [
        RankFile(made=made, local=sharded.root / rows_path(made.tower, made.rank, ranks), weights=weights)
        for made in sharded.made
    ]


def flip_bits(file: RankFile, flips: int, seed: int) -> None:
    """Flip random bits of the rows in turn; each must be found."""
    draw, size, begins = random.Random(seed), file.local.stat().st_size, file.begins()
    for _ in range(flips):
        with (
            flipped(file.local, draw.randrange(begins, size), draw.randrange(8)),
            pytest.raises(WeightsDiffer),
        ):
            file.read_back()


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8", "int4"])
def test_a_flipped_bit_of_any_ranks_rows_is_found(dtype: str, shard: Shard) -> None:
    sharded = shard("dlrm_hstu_sharded", ranks=3, tables={"layout": "sharded", "dtype": dtype})
    for file in files_of(sharded):
        rows, compared = file.read_back()
        assert rows == sum(each.end - each.first for each in file.made.shards) > 0
        assert compared == file.local.stat().st_size - file.begins()
        flip_bits(file, 20, seed=file.made.rank)
        assert file.made.report is not None
        assert (file.made.report.own_rows, file.made.report.bytes) == (rows, compared)


def test_rows_widened_in_files_are_held_against_the_checkpoints(shard: Shard) -> None:
    sharded = shard("dlrm_hstu_fp16", tables={"layout": "sharded", "dtype": "fp32"})
    flip_bits(files_of(sharded)[1], 20, seed=1)


def test_a_flipped_bit_of_a_map_of_ids_is_found(shard: Shard) -> None:
    sharded = shard("dcn_v2", ranks=2)
    for file in files_of(sharded):
        assert any(each.id_map_tensors for each in file.made.shards)
        file.read_back()
        flip_bits(file, 40, seed=file.made.rank)


def test_a_flipped_bit_of_dynamic_rows_or_keys_is_found(tmp_path: Path) -> None:
    spec = spec_for(write_dynamic_checkpoint(tmp_path / "checkpoint", ranks=3), tmp_path)
    order, local = order_of(spec, tmp_path, Ranks(rank=1, size=2)), tmp_path / "rows"
    made = write_tables(order, local, no_progress)
    blueprint = open_blueprint(order.planned, spec, order.config_text)
    found, _ = fetch_checkpoint_once(spec, tmp_path, blueprint.build().config.pipeline)
    blueprint.settle(found)
    weights = TowerWeights(filled=blueprint.fill(blueprint.build(), found))
    file = RankFile(made=made, local=local, weights=weights)
    file.read_back()
    flip_bits(file, 40, seed=2)


def test_a_flipped_bit_of_a_files_header_is_found(shard: Shard) -> None:
    [file, _] = files_of(shard("hstu_match", 1))
    draw = random.Random(4)
    length = int.from_bytes(file.local.read_bytes()[:8], "little")
    text = len(file.local.read_bytes()[8 : 8 + length].rstrip())
    for _ in range(40):
        with (
            flipped(file.local, draw.randrange(8 + text), draw.randrange(8)),
            pytest.raises(WeightsDiffer, match="user tower"),
        ):
            file.read_back()


def test_a_row_that_a_rank_wrote_in_anothers_place_is_named(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = fuse_rows

    def wrong(rows: Tensor, *args: object, first: int, **kwargs: object) -> Tensor:
        fused = right(rows, *args, first=first, **kwargs)  # type: ignore[arg-type]  # passed on as they came
        if first == 1000:
            fused[[10, 20]] = fused[[20, 10]]
        return fused

    monkeypatch.setattr(write, "fuse_rows", wrong)
    with pytest.raises(WeightsDiffer, match=r"item tower: .*video_id_emb.weight: row 1010, column \d+: "):
        shard("hstu_match", 1, tables={"layout": "sharded", "dtype": "int8"})


Change = Callable[[ShardedTable], dict[str, object]]
WRONG: dict[str, tuple[Change, str]] = {
    "swapped files": (
        lambda table: {
            "shards": tuple(
                one.model_copy(update={"file": other.file, "sha256": other.sha256})
                for one, other in zip(table.shards, reversed(table.shards), strict=True)
            )
        },
        "rows 0 to 999 of .*video_id_emb.weight are in tables/item/rows-1-of-2.safetensors, where no rank",
    ),
    "one rank left out": (
        lambda table: {"shards": table.shards[:1]},
        "lacks rows 1000 to 1999 of .*video_id_emb",
    ),
    "other rows": (
        lambda table: {"shards": (table.shards[0].model_copy(update={"end": 999}), table.shards[1])},
        "rows 0 to 998 of",
    ),
    "another width": (lambda table: {"width": 8}, "describes .*video_id_emb.weight as another table"),
    "another dtype": (lambda table: {"kept_in": "int8"}, "describes .*video_id_emb.weight as another table"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_an_index_that_was_joined_wrongly_is_refused(kind: str, shard: Shard) -> None:
    sharded = shard("hstu_match", 1)
    right = tables_file(sharded.planned.name, sharded.made, sharded.spec.tables)
    require_compared(right, sharded.made)
    change, message = WRONG[kind]
    [table] = right.tables
    wrong = TablesFile(
        tower=right.tower, tables=(ShardedTable.model_validate({**dict(table), **change(table)}),)
    )
    with pytest.raises(WeightsDiffer, match=message):
        require_compared(wrong, sharded.made)
