"""The table of contents of an export, from a spec to a published artifact: see `export`."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.artifact.upload import remove_uploads
from exporter.attempt.attempt import DIAGNOSTICS, Attempt, Diagnostics, ExportedTower, TowerResult
from exporter.attempt.stage_timeout import limit_stage
from exporter.code_cache.cache import open_code_cache
from exporter.construction.sources import config_source
from exporter.distributed.isolation import name_process, run_isolated
from exporter.distributed.ranks import Ranks
from exporter.errors import ExportError
from exporter.items.materialise import MaterialisedVectors, materialise_items
from exporter.items.plan import Items, plan_vectors
from exporter.outcome import ExportOutcome, Failure
from exporter.packages.package_tower import Packaged, package_tower
from exporter.packages.parts import TracedPart, plan_packages
from exporter.packages.request import PackagingRequest
from exporter.pipeline.crash_report import report_dead_tower
from exporter.pipeline.entry_check import require_true_entry
from exporter.pipeline.layout_files import render_layout_files, require_layout
from exporter.pipeline.manifest_entry import make_tower_entry, write_tower_files
from exporter.pipeline.open_tower import open_tower
from exporter.pipeline.publish import export_and_upload_towers, find_earlier_outcome, publish_towers
from exporter.pipeline.release import judge_published
from exporter.pipeline.samples import SampleKeeper
from exporter.readback.tower_weights import TowerWeights
from exporter.shards.join import join_tables
from exporter.shards.layout import RankReport, RankTables
from exporter.spec import ExportSpec
from exporter.stages import OnStage, Stage, StageClock
from exporter.towers.plan import TowerToExport, plan_export, read_config
from exporter.trace.outputs import output_entries
from exporter.verify.cases import make_cases
from exporter.verify.runner_process import RunnerProcess

log = logging.getLogger(__name__)


def export(attempt: Attempt, ranks: Ranks, on_stage: OnStage) -> ExportOutcome | None:
    """Export and upload this rank's towers and rows of tables; on rank 0 also publish the artifact.

    Each tower has a process of its own. Its failure, or its death, is part of the outcome and does not stop
    the others. What is published is judged, if the request has a release gate. Returns None on every rank
    but 0.

    Raises:
        ExportError: nothing could be tried (bad spec or config), or nothing could be published.
    """
    try:
        report = export_part_of_rank(attempt, ranks, on_stage)
    except ExportError as error:
        if ranks.size == 1:
            raise
        log.exception("rank_failed", extra={"rank": ranks.rank})
        report = RankReport(failure=Failure.of(error))  # the other ranks must not wait for it
    gathered = ranks.gather(report)
    return (
        None if gathered is None else judge_published(publish_artifact(gathered, attempt), attempt, on_stage)
    )


def export_part_of_rank(attempt: Attempt, ranks: Ranks, on_stage: OnStage) -> RankReport:
    """Export and upload the towers of this rank, and its rows of sharded tables."""
    config_text = read_config(attempt.spec)
    planned = plan_export(attempt.spec, config_text, families=attempt.families)
    if attempt.replace_unfinished and (earlier := find_earlier_outcome(attempt, planned)):
        return RankReport(earlier=earlier)
    own = ranks.share_out(planned)
    tables: list[RankTables] = []
    if attempt.spec.tables.sharded:
        from exporter.shards.rank import (  # TorchRec takes seconds to import
            TablesRequest,
            export_tables_isolated,
        )

        for tower in planned:
            request = TablesRequest(
                planned=tower,
                attempt=attempt,
                config_text=config_text,
                ranks=ranks,
                is_helper=tower not in own,
            )
            tables.append(export_tables_isolated(request, on_stage))
    export_one = partial(export_in_own_process, attempt, config_text, on_stage)
    results = export_and_upload_towers(own, export_one, attempt, on_stage)
    return RankReport(planned=planned, results=tuple(results), tables=tuple(tables))


def publish_artifact(reports: Sequence[RankReport], attempt: Attempt) -> ExportOutcome:
    """Publish the towers and tables of all ranks; publish nothing if one rank failed as a whole."""
    for report in reports:
        if report.failure is not None:
            uploaded = [file for each in reports for file in each.uploaded]
            remove_uploads(uploaded, attempt.artifact_uri, opened=attempt.open_output)
            return ExportOutcome(failure=report.failure)
    if reports[0].earlier is not None:
        return reports[0].earlier
    results = {result.planned.name: result for report in reports for result in report.results}
    if attempt.spec.tables.sharded:
        for name, result in results.items():
            tables = [each for report in reports for each in report.tables if each.tower is name]
            results[name] = join_tables(result, tables, attempt, ranks=len(reports))
    return publish_towers([results[tower.name] for tower in reports[0].planned], attempt)


def export_in_own_process(
    attempt: Attempt, config_text: str, on_stage: OnStage, planned: TowerToExport
) -> TowerResult:
    """Export one tower in a process of its own; the death of the process is the tower's failure."""
    return run_isolated(
        partial(try_export_tower, planned, attempt, config_text, on_stage),
        on_death=partial(report_dead_tower, planned, attempt, config_text),
    )


def try_export_tower(
    planned: TowerToExport, attempt: Attempt, config_text: str, on_stage: OnStage
) -> TowerResult:
    """Export one tower; any error becomes the tower's failure."""
    name_process(f"{planned.name} tower")
    diagnostics = Diagnostics(attempt.workspace / planned.name / DIAGNOSTICS)
    clock = StageClock(planned.name, on_stage, within=partial(limit_stage, attempt, planned.name))
    try:
        # Imports torch while the tower is opened, unless there is a server that has.
        with RunnerProcess(attempt.workspace, server=attempt.runners) as runner:
            exported = export_tower(planned, attempt, config_text, clock, diagnostics, runner)
    except Exception as error:
        log.exception("tower_failed", extra={"tower": planned.name})
        diagnostics.write(error)
        return TowerResult(planned=planned, failure=Failure.of(as_out_of_memory(error) or error))
    return TowerResult(planned=planned, exported=exported)


def export_tower(
    planned: TowerToExport,
    attempt: Attempt,
    config_text: str,
    clock: StageClock,
    diagnostics: Diagnostics,
    runner: RunnerProcess,
) -> ExportedTower:
    """Take one tower through every stage; return it only if it has passed verification."""
    spec, folder = attempt.spec, attempt.workspace / planned.name
    folder.mkdir(exist_ok=True)  # there may be notes of its tables in it
    opened = open_tower(planned, spec, config_text, attempt.workspace, clock, diagnostics=diagnostics)
    tower = opened.tower
    packages = plan_packages(tower, spec)
    samples = SampleKeeper(most_rows=spec.sample_rows)
    packaged = package_tower(
        PackagingRequest(
            tower=tower,
            parts=packages.parts,
            inputs=packages.first_inputs(opened.inputs),
            lookup=packages.lookup,
            scripted=packages.scripted,
            make_cases=partial(make_cases, opened.rows, tower.plan),
            device=opened.device,
            folder=folder,
            passes=spec.passes_of(planned.name),
            target=spec.targets[0],
            weights=TowerWeights(filled=opened.filled, tables=opened.lowered.tables),
            fp32=opened.lowered.fp32,
            runner=runner,
            call_limit_s=attempt.stage_limit_s / 4,  # a hanging call fails before the stage's limit ends all
            on_traced=partial(inspect_programs, spec, opened.items, diagnostics),
            on_checked=samples.keep,
        ),
        open_code_cache(attempt.code_cache) if attempt.code_cache else None,
        clock,
    )
    vectors = materialise_vectors(opened.items, packaged, folder, clock)
    config_uri = attempt.config_uri or spec.config_uri
    beside = opened.blueprint.files(spec, config_uri, attempt.places)
    contents = {**beside.contents, **render_layout_files(tower.name, packaged, samples.choose(), attempt)}
    files = write_tower_files(tower.name, contents, packaged.written, folder)
    written = samples.write(tower.name, folder)
    entry = make_tower_entry(
        opened,
        packaged,
        files,
        clock.seconds,
        remarks=beside.remarks,
        samples=written.entry if written else None,
        vectors=vectors.entry if vectors else None,
    )
    require_true_entry(entry, planned, opened, packaged, contents, written)
    return ExportedTower(
        entry=entry,
        files={**files, **(written.files if written else {}), **(vectors.files if vectors else {})},
        sources=(config_source(config_uri, config_text), *opened.sources),
        op_libraries=packaged.op_libraries,
    )


def inspect_programs(
    spec: ExportSpec, items: Items | None, diagnostics: Diagnostics, traced: Sequence[TracedPart]
) -> None:
    """Keep the traced programs for a later failure; refuse vectors, or a layout, that the tower cannot make.

    Both happen before anything is compiled, which takes longest.
    """
    for part in traced:
        diagnostics.keep(f"{part.part.name}_program.txt", partial(str, part.program))
    require_layout(spec, traced)
    if items is not None:
        plan_vectors(items, output_entries(traced[-1].program, traced[-1].part.tower.plan))


def materialise_vectors(
    items: Items | None, packaged: Packaged, folder: Path, clock: StageClock
) -> MaterialisedVectors | None:
    """Run the verified package over every item; return None where their vectors are not wanted."""
    if items is None:
        return None
    with clock.stage(Stage.ITEMS) as progress:
        return materialise_items(plan_vectors(items, packaged.outputs), packaged.runnable, folder, progress)
