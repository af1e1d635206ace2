"""What all ranks made of a tower's tables, joined to its dense package; on rank 0, once all are done."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from exporter.attempt import Attempt, ExportedTower, TowerResult
from exporter.dims.between import plan_between
from exporter.dims.entries import dim_entries, tensor_entries
from exporter.errors import AttemptFailed, ExportError
from exporter.lowering.tables import RowErrors
from exporter.manifest import (
    LookupReport,
    ShardedTable,
    ShardedTables,
    TableEntry,
    TableRows,
    TablesFile,
)
from exporter.models.table_uses import TableUse
from exporter.models.tables import fused_meta
from exporter.outcome import Failure
from exporter.planning import PlannedTower
from exporter.publish import send_file, withdraw
from exporter.published import file_ref
from exporter.shards.made import RankTables, index_path
from exporter.spec import Tables, TowerName


def joined(result: TowerResult, made: Sequence[RankTables], attempt: Attempt) -> TowerResult:
    """The tower's result with its tables in it; a failure where they failed on any rank.

    Of a tower that is not to be published, what ranks have sent is taken back.
    """
    sent = tuple(each.sent for each in made if each.sent is not None)
    failure = result.failure or next((each.failure for each in made if each.failure), None)
    if failure is None and len({each.plan for each in made}) > 1:
        ranks = " and ".join(str(each.rank) for each in made if each.plan != made[0].plan)
        failure = Failure.of(
            AttemptFailed(f"rank {ranks} would cut the tables of the {result.planned.name} tower otherwise")
        )
    if failure is not None:
        withdraw((*result.sent, *sent), attempt.artifact_uri)
        return TowerResult(planned=result.planned, failure=failure)
    result = replace(result, sent=(*result.sent, *sent))
    if unsent := next((each.unsent for each in made if each.unsent), None):
        return replace(result, unsent=result.unsent or unsent)
    assert result.exported is not None and isinstance(result.planned, PlannedTower)
    try:
        return _with_index(result, result.exported, result.planned, made, attempt)
    except ExportError as error:
        return replace(result, unsent=Failure.of(error))


def _with_index(
    result: TowerResult,
    exported: ExportedTower,
    planned: PlannedTower,
    made: Sequence[RankTables],
    attempt: Attempt,
) -> TowerResult:
    """The same with `tables.json` sent, and named in the tower's entry."""
    local = attempt.workspace / f"{planned.name}_tables.json"
    local.write_text(tables_file(planned.name, made, attempt.spec.tables).model_dump_json(indent=2) + "\n")
    index = file_ref(index_path(planned.name), local)
    stored = send_file(
        index,
        local,
        attempt.artifact_uri,
        replace_unfinished=attempt.replace_unfinished,
        may_send=attempt.await_lease,
    )
    between = plan_between(planned.config.pipeline, max_batch_size=attempt.spec.max_batch_size)
    tables = ShardedTables(
        index=index,
        shards=tuple(each.file for each in made if each.file is not None),
        tensors=tensor_entries(between),
        dims=dim_entries(between),
        verified=_report(made),
    )
    embeddings = _with_errors(exported.entry.embeddings, made)
    entry = exported.entry.model_copy(update={"tables": tables, "embeddings": embeddings})
    return replace(result, exported=replace(exported, entry=entry), sent=(*result.sent, stored))


def tables_file(tower: TowerName, made: Sequence[RankTables], tables: Tables) -> TablesFile:
    """Each table of the tower, and the rows of it that each rank has, in their order."""
    described = tuple(
        ShardedTable(
            name=table.name,
            tensor=table.weight,
            rows=table.meta.shape[0],
            width=table.meta.shape[1],
            dtype=str(fused_meta(table.meta, tables.dtype_of(table.name)).dtype).removeprefix("torch."),
            kept_in=tables.dtype_of(table.name),
            features=table.features,
            shards=tuple(sorted(_rows_of(table, made), key=lambda rows: rows.first)),
        )
        for table in made[0].tables
    )
    return TablesFile(tower=tower, tables=described)


def _with_errors(embeddings: Sequence[TableEntry], made: Sequence[RankTables]) -> tuple[TableEntry, ...]:
    """The tables with the errors of their rows, which every rank knows of its own."""
    found: dict[str, RowErrors] = {}
    for each in made:
        for weight, errors in each.errors:
            found.setdefault(weight, RowErrors()).join(errors)
    return tuple(
        entry.model_copy(update={"error": found[weight].told()})
        if (weight := f"{entry.path}.weight") in found
        else entry
        for entry in embeddings
    )


def _rows_of(table: TableUse, made: Sequence[RankTables]) -> Iterator[TableRows]:
    for each in made:
        for share in each.shares:
            if share.table == table and each.file is not None:
                yield TableRows(
                    first=share.first, end=share.end, file=each.file.path, sha256=each.file.sha256
                )


def _report(made: Sequence[RankTables]) -> LookupReport:
    reports = [each.report for each in made if each.report is not None]
    return LookupReport(
        cases=sum(report.cases for report in reports),
        refused=sum(report.refused for report in reports),
        largest_difference=max((report.largest_difference for report in reports), default=0.0),
    )
