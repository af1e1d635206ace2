"""Join all ranks' tables of a tower to its dense package, on rank 0, once all ranks are done."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from exporter.artifact.read import file_ref
from exporter.artifact.upload import remove_abandoned_files, remove_uploads, upload_file
from exporter.attempt.attempt import Attempt, ExportedTower, TowerResult
from exporter.dims.entries import dim_entries, tensor_entries, tried_between
from exporter.dims.package_interface import bound_as_published, plan_between
from exporter.errors import AttemptFailed, CheckpointUnreadable, ExportError
from exporter.lowering.tables import RowErrors
from exporter.manifest import LookupReport, ShardedTables, SourceRef, TableEntry
from exporter.models.embedding.table_uses import TableUse
from exporter.models.embedding.tables import meta_of_fused_rows
from exporter.options.tables import Tables
from exporter.outcome import Failure
from exporter.reports.table_files import ShardedTable, TableRows, TablesFile
from exporter.shards.layout import RankTables, index_path, rows_path
from exporter.shards.read_back import require_compared
from exporter.spec import TowerName
from exporter.towers.plan import PlannedTower


def join_tables(
    result: TowerResult, parts: Sequence[RankTables], attempt: Attempt, *, ranks: int
) -> TowerResult:
    """Return the tower's result with its tables added; a failure if the tables failed on any of `ranks`.

    If the tower cannot be published, the files that ranks uploaded for it are removed, also those that a rank
    may have uploaded before it died: they would block the publication of the other towers.
    """
    name, uploaded = result.planned.name, tuple(each.uploaded for each in parts if each.uploaded is not None)
    failure = result.failure or next((each.failure for each in parts if each.failure), None)
    upload_failure = result.upload_failure or next(
        (each.upload_failure for each in parts if each.upload_failure), None
    )
    if not failure and not upload_failure:
        failure = _find_mismatch(result, parts, ranks)
    if failure is not None:
        remove_uploads((*result.uploaded, *uploaded), attempt.artifact_uri, opened=attempt.open_output)
        left = _remove_unreported_files(name, parts, ranks, attempt)
        return TowerResult(planned=result.planned, failure=failure, upload_failure=upload_failure or left)
    result = replace(result, uploaded=(*result.uploaded, *uploaded))
    if upload_failure is not None:
        return replace(result, upload_failure=upload_failure)
    assert result.exported is not None and isinstance(result.planned, PlannedTower)
    try:
        return _add_index(result, result.exported, result.planned, parts, attempt)
    except ExportError as error:
        return replace(result, upload_failure=Failure.of(error))


def _remove_unreported_files(
    name: TowerName, parts: Sequence[RankTables], ranks: int, attempt: Attempt
) -> Failure | None:
    """Remove files that ranks may have uploaded before they died; return why that failed, if it did."""
    reported = {each.rank for each in parts if not each.died}
    if not (paths := [rows_path(name, rank, ranks) for rank in range(ranks) if rank not in reported]):
        return None
    try:
        remove_abandoned_files(paths, attempt.artifact_uri, attempt.await_lease, opened=attempt.open_output)
    except ExportError as error:
        return Failure.of(error)
    return None


def _find_mismatch(result: TowerResult, parts: Sequence[RankTables], ranks: int) -> Failure | None:
    """Return why the ranks' results are not complete tables of the tower; None if they are."""
    assert result.exported is not None
    [weights] = [source for source in result.exported.sources if source.role == "checkpoint"]
    try:
        _require_one_of_each(result.planned.name, parts, ranks)
        _require_same(result.planned.name, parts, weights)
        for table in parts[0].tables:
            _require_whole(result.planned.name, table, parts)
    except ExportError as error:
        return Failure.of(error)
    return None


def _require_one_of_each(name: TowerName, parts: Sequence[RankTables], ranks: int) -> None:
    found = sorted(each.rank for each in parts)
    if found != list(range(ranks)):
        raise AttemptFailed(f"of {ranks} ranks, {_list_ranks(found)} brought tables of the {name} tower")


def _require_same(name: TowerName, parts: Sequence[RankTables], weights: SourceRef) -> None:
    """Check that all ranks split the same tables of the same checkpoint in the same way."""
    first = parts[0]
    if odd := [each.rank for each in parts if (each.plan, each.tables) != (first.plan, first.tables)]:
        raise AttemptFailed(
            f"the tables of the {name} tower are split differently on rank {_list_ranks(odd)}"
        )
    if odd := [each.rank for each in parts if each.checkpoint != weights]:
        raise CheckpointUnreadable(
            f"rank {_list_ranks(odd)} read another checkpoint at {weights.uri} for the tables of the {name} "
            "tower than its dense weights were read from",
            hint="give a checkpoint_uri that names the same files on every host, and do not change the files",
            where=weights.uri,
        )


def _require_whole(name: TowerName, table: TableUse, parts: Sequence[RankTables]) -> None:
    """Check that the shards of a table contain every row once, in order."""
    shards, rows = sorted(_rows_of(table, parts), key=lambda rows: rows.first), table.meta.shape[0]
    begins, ends = (*(shard.first for shard in shards), rows), (0, *(shard.end for shard in shards))
    for begin, end in zip(begins, ends, strict=True):
        if begin != end:
            raise AttemptFailed(
                f"table {table.name} of the {name} tower, of {rows} rows: after {end} rows, the ranks' files "
                f"continue with row {begin}"
            )


def _list_ranks(ranks: Sequence[int]) -> str:
    return " and ".join(str(rank) for rank in ranks) or "none"


def _add_index(
    result: TowerResult,
    exported: ExportedTower,
    planned: PlannedTower,
    parts: Sequence[RankTables],
    attempt: Attempt,
) -> TowerResult:
    """Upload `tables.json` and name it in the tower's entry; return the result with both."""
    local = attempt.workspace / f"{planned.name}_tables.json"
    local.write_text(tables_file(planned.name, parts, attempt.spec.tables).model_dump_json(indent=2) + "\n")
    require_compared(TablesFile.model_validate_json(local.read_bytes()), parts)
    index = file_ref(index_path(planned.name), local)
    stored = upload_file(
        index,
        local,
        attempt.artifact_uri,
        replace_unfinished=attempt.replace_unfinished,
        may_upload=attempt.await_lease,
        opened=attempt.open_output,
    )
    between = plan_between(planned.config.pipeline, max_batch_size=attempt.spec.max_batch_size)
    between = bound_as_published(between, exported.entry.dims)
    tables = ShardedTables(
        index=index,
        shards=tuple(each.file for each in parts if each.file is not None),
        tensors=tensor_entries(between),
        dims=dim_entries(between, tried_between(exported.entry.dims)),
        verified=_join_reports(parts),
    )
    embeddings = _add_row_errors(exported.entry.embeddings, parts)
    entry = exported.entry.model_copy(update={"tables": tables, "embeddings": embeddings})
    return replace(result, exported=replace(exported, entry=entry), uploaded=(*result.uploaded, stored))


def tables_file(tower: TowerName, parts: Sequence[RankTables], tables: Tables) -> TablesFile:
    """Describe each table of the tower, and which file has which of its rows, in order."""
    described = tuple(
        ShardedTable(
            name=table.name,
            tensor=table.weight,
            rows=table.meta.shape[0],
            width=table.meta.shape[1],
            dtype=str(meta_of_fused_rows(table.meta, kept_in).dtype).removeprefix("torch."),
            kept_in=kept_in,
            features=table.features,
            id_map=table.id_map,
            shards=tuple(sorted(_rows_of(table, parts), key=lambda rows: rows.first)),
        )
        for table in parts[0].tables
        for kept_in in (tables.dtype_of(table.name, table.trained),)
    )
    return TablesFile(tower=tower, tables=described)


def _add_row_errors(embeddings: Sequence[TableEntry], parts: Sequence[RankTables]) -> tuple[TableEntry, ...]:
    """Add the errors of quantised rows, joined over all ranks, to the tables' entries."""
    found: dict[str, RowErrors] = {}
    for each in parts:
        for weight, errors in each.errors:
            found.setdefault(weight, RowErrors()).join(errors)
    return tuple(
        entry.model_copy(update={"error": found[weight].summarise()})
        if (weight := f"{entry.path}.weight") in found
        else entry
        for entry in embeddings
    )


def _rows_of(table: TableUse, parts: Sequence[RankTables]) -> Iterator[TableRows]:
    for each in parts:
        for shard in each.shards:
            if shard.table == table and each.file is not None:
                yield TableRows(
                    first=shard.first, end=shard.end, file=each.file.path, sha256=each.file.sha256
                )


def _join_reports(parts: Sequence[RankTables]) -> LookupReport:
    reports = [each.report for each in parts if each.report is not None]
    return LookupReport(
        cases=sum(report.cases for report in reports),
        refused=sum(report.refused for report in reports),
        own_rows=sum(report.own_rows for report in reports),
        bytes=sum(report.bytes for report in reports),
        largest_difference=max((report.largest_difference for report in reports), default=0.0),
    )
