"""One rank's part of a tower's tables: its rows written, tried and sent. Nothing is gathered.

Every rank finds out by itself which rows are its own; what it wrote, it tries by itself as well: lookups in
its own rows as written, and in all others as the checkpoint has them, against eager ones.
"""

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from exporter.artifact.upload import upload_file
from exporter.attempt.attempt import Attempt
from exporter.attempt.stage_timeout import find_stage_timeout, limit_stage
from exporter.construction.open_blueprint import open_blueprint
from exporter.construction.sources import fetch_checkpoint_once
from exporter.distributed.isolation import run_isolated
from exporter.distributed.ranks import Ranks
from exporter.distributed.topology import plan_digest, row_wise_plan, rows_of_rank
from exporter.errors import ExportError, TowerDied
from exporter.lowering.tables import quantise_tables
from exporter.manifest import FileRef
from exporter.models.embedding.table_uses import TableUse, list_tables
from exporter.outcome import Failure
from exporter.shards.layout import RankTables, TableShard, rows_path
from exporter.shards.verify import WrittenShards, verify_lookups
from exporter.shards.write import write_rows
from exporter.stages import OnStage, Progress, Stage, StageClock, throttle_progress
from exporter.towers.plan import TowerToExport

_WRITTEN, _TRIED = 0.6, 0.7  # of the stage, about

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TablesRequest:
    """A tower whose tables are to be written, and which of their rows are to be: one rank's."""

    planned: TowerToExport
    attempt: Attempt
    config_text: str
    ranks: Ranks
    helps: bool = False  # the tower's dense part is another rank's

    @property
    def place(self) -> str:
        """Who reports, and where: as the tower itself, or as one who helps with it."""
        return f"{self.planned.name}.{self.ranks.rank}" if self.helps else self.planned.name.value


def export_tables_isolated(order: TablesRequest, on_stage: OnStage) -> RankTables:
    """Do this rank's part of a tower's tables, in a process of its own; whatever goes wrong is told."""
    return run_isolated(partial(export_tables, order, on_stage), on_death=partial(_process_died, order))


def export_tables(order: TablesRequest, on_stage: OnStage) -> RankTables:
    """The same in this process."""
    clock = StageClock(order.place, on_stage, within=partial(limit_stage, order.attempt, order.place))
    local = order.attempt.workspace / f"{order.place}.safetensors"
    try:
        with clock.stage(Stage.TABLES) as progress:
            made = write_tables(order, local, throttle_progress(progress))
            return _upload_rows(made, local, order.attempt, throttle_progress(progress))
    except Exception as error:
        log.exception("tables_failed", extra={"tower": order.planned.name, "rank": order.ranks.rank})
        return _failed_tables(order, error)


def _process_died(order: TablesRequest, how: str) -> RankTables:
    name, rank = order.planned.name, order.ranks.rank
    died = TowerDied(f"the process that wrote the {name} tower's tables on rank {rank} {how}")
    return replace(_failed_tables(order, find_stage_timeout(order.attempt, order.place) or died), died=True)


def _failed_tables(order: TablesRequest, error: Exception) -> RankTables:
    return RankTables(tower=order.planned.name, rank=order.ranks.rank, failure=Failure.of(error))


def write_tables(order: TablesRequest, local: Path, progress: Progress) -> RankTables:
    """Write this rank's rows of every table of the tower to the file `local`, and try them.

    Raises:
        CheckpointError: the checkpoint cannot be read, is not of this model, or holds what is no number.
        VerificationFailed: what is looked up in the file is not what eager looks up.
    """
    spec, ranks, name = order.attempt.spec, order.ranks, order.planned.name
    blueprint = open_blueprint(order.planned, spec, order.config_text)
    tower = blueprint.build()
    tables = {table.weight: table for table in list_tables(tower.module)}
    plan = row_wise_plan({weight: _rows_and_width(table) for weight, table in tables.items()}, ranks.size)
    shares = tuple(
        TableShard(
            table=tables[weight],
            first=first,
            end=end,
            kept_in=spec.tables.dtype_of(tables[weight].name),
        )
        for weight, (first, end) in rows_of_rank(plan, ranks.rank).items()
    )
    averaged = tower.config.pipeline.averaged_weights
    checkpoint, source = fetch_checkpoint_once(spec, order.attempt.workspace, averaged=averaged)
    made = RankTables(
        tower=name,
        rank=ranks.rank,
        plan=plan_digest(plan),
        checkpoint=source,
        tables=tuple(tables.values()),
        shares=shares,
    )
    blueprint.fill(tower, checkpoint)
    quantise_tables(tower.module, spec.tables)
    if not shares:
        return made
    written = write_rows(
        shares,
        checkpoint,
        local,
        lambda done, total: progress(
            _WRITTEN * done / total, f"tables: {done:,} of {total:,} bytes of rows written"
        ),
    )
    path = rows_path(name, ranks.rank, ranks.size)
    progress(_WRITTEN, "lookups in the rows as written, against eager ones")
    return replace(
        made,
        errors=written.errors,
        file=FileRef(path=path, size=local.stat().st_size, sha256=written.sha256),
        report=verify_lookups(tower, blueprint, WrittenShards(shares, checkpoint, local), spec),
    )


def _rows_and_width(table: TableUse) -> tuple[int, int]:
    rows, width = table.meta.shape
    return rows, width


def _upload_rows(made: RankTables, local: Path, attempt: Attempt, progress: Progress) -> RankTables:
    """The same with its file where the artifact is to be, or with the reason why it is not."""
    if made.file is None:
        return made
    try:
        attempt.await_lease()  # what a straggler would send could meet what its successor sends
        stored = upload_file(
            made.file,
            local,
            attempt.artifact_uri,
            replace_unfinished=attempt.replace_unfinished,
            may_upload=attempt.await_lease,
            on_progress=lambda sent, total: progress(
                _TRIED + (1 - _TRIED) * sent / total, f"tables: {sent:,} of {total:,} bytes sent"
            ),
        )
    except ExportError as error:
        log.exception("tables_not_sent", extra={"tower": made.tower})
        return replace(made, unsent=Failure.of(error))
    local.unlink()  # a share of large tables would else be on the disk twice until the end
    return replace(made, sent=stored)
