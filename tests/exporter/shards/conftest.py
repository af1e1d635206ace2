"""Tables of recorded models, written by any number of ranks in this process: nothing is compiled or sent."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.attempt.attempt import Attempt
from exporter.distributed.ranks import Ranks
from exporter.pipeline.open_tower import OpenedTower, open_tower
from exporter.shards.layout import RankTables, rows_path
from exporter.shards.rank import TablesRequest, write_tables
from exporter.spec import ExportSpec
from exporter.stages import StageClock, no_progress
from exporter.towers.plan import PlannedTower, plan_towers
from tests.exporter.stage_events import ignore_stages

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"
ROWS = FIXTURES / "data"
REC2 = ("dcn_v2", "wide_and_deep")  # models whose rows are in rec2


@dataclass(frozen=True, kw_only=True)
class Sharded:
    """A tower, its tables as the ranks of one attempt wrote them, and the folder they are below."""

    spec: ExportSpec
    planned: PlannedTower
    opened: OpenedTower
    made: tuple[RankTables, ...]
    root: Path


Shard = Callable[..., Sharded]


def spec_of(model: str, folder: Path, **changes: object) -> ExportSpec:
    """The export of a recorded model with its tables in shards, to be published below `folder`."""
    rows = ROWS if "hstu" in model else ROWS / ("rec2" if model in REC2 else "rec")
    [checkpoint] = (FIXTURES / model).glob("model.ckpt-*")
    given = {
        "config": (FIXTURES / model / "pipeline.config").read_text(),
        "checkpoint_uri": str(checkpoint),
        "item_input_uri": str(rows / "items.parquet"),
        "sample_input_uri": str(rows / "train.parquet"),
        "output_uri": str(folder / "out"),
        "mode": "two_stage",
        "tables": "sharded",
        "max_batch_size": 32,
    }
    return ExportSpec.model_validate({**given, **changes})


def order_of(spec: ExportSpec, workspace: Path, ranks: Ranks, *, tower: int = 0) -> TablesRequest:
    """Return the work of one rank on one tower."""
    assert spec.config is not None
    planned = plan_towers(spec, spec.config)[tower]
    attempt = Attempt(job_id="job", spec=spec, workspace=workspace)
    return TablesRequest(planned=planned, attempt=attempt, config_text=spec.config, ranks=ranks)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    """Writes the tables of a recorded model's tower, by its place, as so many ranks would."""

    def make(model: str, tower: int = 0, *, ranks: int = 2, tables: object = "sharded") -> Sharded:
        spec, made = spec_of(model, tmp_path, tables=tables), []
        orders = [
            order_of(spec, tmp_path, Ranks(rank=rank, size=ranks), tower=tower) for rank in range(ranks)
        ]
        planned = orders[0].planned
        assert isinstance(planned, PlannedTower)
        for order in orders:
            local = tmp_path / rows_path(planned.name, order.ranks.rank, ranks)
            local.parent.mkdir(parents=True, exist_ok=True)
            made.append(write_tables(order, local, no_progress))
        clock = StageClock(planned.name, ignore_stages)
        opened = open_tower(planned, spec, orders[0].config_text, tmp_path, clock)
        return Sharded(spec=spec, planned=planned, opened=opened, made=tuple(made), root=tmp_path)

    return make
