"""One rank's part of a tower's tables: write its rows, verify them and upload them.

Ranks do not communicate for it: each computes which rows are its own, and verifies what it wrote by itself.
Lookups in its own rows as written, and in all other rows of the checkpoint, are compared with eager ones.
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
from exporter.models.embedding.id_map import id_map_tensors
from exporter.models.embedding.table_uses import TableUse, list_tables
from exporter.outcome import Failure
from exporter.readback.tower_weights import TowerWeights
from exporter.shards.layout import RankTables, TableShard, rows_path
from exporter.shards.read_back import read_back_rows
from exporter.shards.verify import WrittenShards, verify_lookups
from exporter.shards.write import write_rows
from exporter.stages import OnStage, Progress, Stage, StageClock, throttle_progress
from exporter.towers.plan import TowerToExport

_WRITTEN, _VERIFIED = 0.6, 0.7  # progress of the stage, roughly, after these steps

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TablesRequest:
    """Request to write one rank's rows of a tower's tables."""

    planned: TowerToExport
    attempt: Attempt
    config_text: str
    ranks: Ranks
    is_helper: bool = False  # another rank exports the tower's dense part

    @property
    def reporter(self) -> str:
        """Name in stage events and file names: of the tower, for a helper with the rank's number."""
        return f"{self.planned.name}.{self.ranks.rank}" if self.is_helper else self.planned.name.value


def export_tables_isolated(request: TablesRequest, on_stage: OnStage) -> RankTables:
    """Write, verify and upload the rank's rows in a child process; the result reports every failure."""
    return run_isolated(partial(export_tables, request, on_stage), on_death=partial(_process_died, request))


def export_tables(request: TablesRequest, on_stage: OnStage) -> RankTables:
    """Write, verify and upload the rank's rows in this process; the result reports every failure."""
    clock = StageClock(
        request.reporter, on_stage, within=partial(limit_stage, request.attempt, request.reporter)
    )
    local = request.attempt.workspace / f"{request.reporter}.safetensors"
    try:
        with clock.stage(Stage.TABLES) as progress:
            tables = write_tables(request, local, throttle_progress(progress))
            return _upload_rows(tables, local, request.attempt, throttle_progress(progress))
    except Exception as error:
        log.exception("tables_failed", extra={"tower": request.planned.name, "rank": request.ranks.rank})
        return _failed_tables(request, error)


def _process_died(request: TablesRequest, how: str) -> RankTables:
    name, rank = request.planned.name, request.ranks.rank
    died = TowerDied(f"the process that wrote the {name} tower's tables on rank {rank} {how}")
    return replace(
        _failed_tables(request, find_stage_timeout(request.attempt, request.reporter) or died), died=True
    )


def _failed_tables(request: TablesRequest, error: Exception) -> RankTables:
    return RankTables(tower=request.planned.name, rank=request.ranks.rank, failure=Failure.of(error))


def write_tables(request: TablesRequest, local: Path, progress: Progress) -> RankTables:
    """Write this rank's rows of every table of the tower to the file `local`, and verify them.

    Raises:
        CheckpointError: the checkpoint cannot be read, is not of this model, or contains NaN or infinity.
        WeightsDiffer: a row in the file is not the checkpoint's.
        VerificationFailed: a lookup in the file differs from eager's.
    """
    spec, ranks, name = request.attempt.spec, request.ranks, request.planned.name
    blueprint = open_blueprint(request.planned, spec, request.config_text)
    tower = blueprint.build()
    pipeline = tower.config.pipeline
    checkpoint, source = fetch_checkpoint_once(spec, request.attempt.workspace, pipeline)
    if blueprint.settle(checkpoint):
        tower = blueprint.build()
    tables = {table.weight: table for table in list_tables(tower.module)}
    plan = row_wise_plan({weight: _rows_and_width(table) for weight, table in tables.items()}, ranks.size)
    shards = tuple(
        TableShard(
            table=tables[weight],
            first=first,
            end=end,
            kept_in=spec.tables.dtype_of(tables[weight].name, tables[weight].trained),
        )
        for weight, (first, end) in rows_of_rank(plan, ranks.rank).items()
    )
    result = RankTables(
        tower=name,
        rank=ranks.rank,
        plan=plan_digest(plan),
        checkpoint=source,
        tables=tuple(tables.values()),
        shards=shards,
    )
    filled = blueprint.fill(tower, checkpoint)
    quantise_tables(tower.module, spec.tables)
    if not shards:
        return result
    written = write_rows(
        shards,
        checkpoint,
        id_map_tensors(tower.module),
        local,
        lambda done, total: progress(
            _WRITTEN * done / total, f"tables: {done:,} of {total:,} bytes of rows written"
        ),
    )
    path = rows_path(name, ranks.rank, ranks.size)
    progress(_WRITTEN, "the written rows, compared with the checkpoint's")
    rows, compared = read_back_rows(shards, local, TowerWeights(filled=filled), title=tower.title)
    progress(_WRITTEN, "lookups in the written rows, compared with eager")
    report = verify_lookups(tower, blueprint, WrittenShards(shards, checkpoint, local), spec)
    return replace(
        result,
        errors=written.errors,
        file=FileRef(path=path, size=local.stat().st_size, sha256=written.sha256),
        report=report.model_copy(update={"own_rows": rows, "bytes": compared}),
    )


def _rows_and_width(table: TableUse) -> tuple[int, int]:
    rows, width = table.meta.shape
    return rows, width


def _upload_rows(tables: RankTables, local: Path, attempt: Attempt, progress: Progress) -> RankTables:
    """Upload the rank's file; return `tables` with the stored file, or with the failure."""
    if tables.file is None:
        return tables
    try:
        attempt.await_lease()  # a straggler's files could block those of its successor
        stored = upload_file(
            tables.file,
            local,
            attempt.artifact_uri,
            replace_unfinished=attempt.replace_unfinished,
            may_upload=attempt.await_lease,
            opened=attempt.open_output,
            on_progress=lambda done, total: progress(
                _VERIFIED + (1 - _VERIFIED) * done / total, f"tables: {done:,} of {total:,} bytes sent"
            ),
        )
    except ExportError as error:
        log.exception("tables_not_uploaded", extra={"tower": tables.tower})
        return replace(tables, upload_failure=Failure.of(error))
    local.unlink()  # large tables would otherwise be on the disk twice until the end
    return replace(tables, uploaded=stored)
