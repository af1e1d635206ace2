"""export(): the table of contents of an export, from a spec to a published artifact."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from exporter.aoti.architecture import require_target
from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.artifact.upload import remove_uploads
from exporter.attempt.attempt import EVIDENCE, Attempt, Evidence, ExportedTower, TowerResult
from exporter.attempt.stage_timeout import limits_of
from exporter.code_cache.cache import open_code_cache
from exporter.construction.open_tower import blueprint_of, fill
from exporter.construction.sources import config_source, open_rows
from exporter.data.batch import contradicting_batches, trace_inputs
from exporter.data.sweep import agreeing_batches
from exporter.distributed.isolation import name_process, run_isolated
from exporter.distributed.ranks import Ranks
from exporter.errors import ExportError
from exporter.items.materialise import MaterialisedVectors, materialise_items
from exporter.items.plan import Items, open_items, plan_vectors
from exporter.lowering.lower_tower import lower
from exporter.outcome import ExportOutcome, Failure
from exporter.packages.package_tower import Packaged, package_tower
from exporter.packages.parts import TracedPart, packaging_of, sizes_text
from exporter.packages.request import PackageOrder
from exporter.pipeline.crash_report import tower_died
from exporter.pipeline.manifest_entry import tower_entry, write_tower_files
from exporter.pipeline.publish import publish_towers, published_earlier, sent_while_others_work
from exporter.shards.join import join_tables
from exporter.shards.layout import RankReport, RankTables
from exporter.stages import OnStage, Stage, StageClock
from exporter.towers.plan import TowerToExport, plan_export, read_config
from exporter.trace.outputs import output_entries
from exporter.trace.shape_rules import infer_shape_rules
from exporter.verify.runner import RunnerProcess

log = logging.getLogger(__name__)


class Attendants(NamedTuple):
    """What is at hand while a tower is exported: texts for its failure, a process for its package."""

    evidence: Evidence
    runner: RunnerProcess


def export(attempt: Attempt, ranks: Ranks, on_stage: OnStage) -> ExportOutcome | None:
    """Export and send what is this rank's: towers, and rows of tables; on rank 0 also publish the artifact.

    Each tower has a process of its own. Its failure, or its death, is part of the outcome and does not stop
    the others. Returns None on every rank but 0.

    Raises:
        ExportError: nothing could be tried (bad spec or config), or nothing could be published.
    """
    try:
        part = part_of_rank(attempt, ranks, on_stage)
    except ExportError as error:
        if ranks.size == 1:
            raise
        log.exception("rank_failed", extra={"rank": ranks.rank})
        part = RankReport(failure=Failure.of(error))  # which the others must not wait for
    gathered = ranks.gather(part)
    return None if gathered is None else publish_parts(gathered, attempt)


def part_of_rank(attempt: Attempt, ranks: Ranks, on_stage: OnStage) -> RankReport:
    """This rank's part of the export: its towers, and its rows of sharded tables."""
    config_text = read_config(attempt.spec)
    planned = plan_export(attempt.spec, config_text, families=attempt.families)
    if attempt.replace_unfinished and (earlier := published_earlier(attempt, planned)):
        return RankReport(earlier=earlier)
    own = ranks.share_out(planned)
    tables: list[RankTables] = []
    if attempt.spec.tables.sharded:
        from exporter.shards.rank import (  # TorchRec takes seconds to import
            TablesRequest,
            export_tables_isolated,
        )

        for tower in planned:
            order = TablesRequest(
                planned=tower,
                attempt=attempt,
                config_text=config_text,
                ranks=ranks,
                helps=tower not in own,
            )
            tables.append(export_tables_isolated(order, on_stage))
    results = sent_while_others_work(
        own, partial(isolated_tower, attempt, config_text, on_stage), attempt, on_stage
    )
    return RankReport(planned=planned, results=tuple(results), tables=tuple(tables))


def publish_parts(parts: Sequence[RankReport], attempt: Attempt) -> ExportOutcome:
    """Publish what all ranks made; nothing, if one of them failed as a whole."""
    for part in parts:
        if part.failure is not None:
            remove_uploads([file for each in parts for file in each.sent], attempt.artifact_uri)
            return ExportOutcome(failure=part.failure)
    if parts[0].earlier is not None:
        return parts[0].earlier
    results = {result.planned.name: result for part in parts for result in part.results}
    if attempt.spec.tables.sharded:
        for name, result in results.items():
            made = [each for part in parts for each in part.tables if each.tower is name]
            results[name] = join_tables(result, made, attempt, ranks=len(parts))
    return publish_towers([results[tower.name] for tower in parts[0].planned], attempt)


def isolated_tower(
    attempt: Attempt, config_text: str, on_stage: OnStage, planned: TowerToExport
) -> TowerResult:
    """Export one tower in a process of its own."""
    return run_isolated(
        partial(try_tower, planned, attempt, config_text, on_stage),
        on_death=partial(tower_died, planned, attempt, config_text),
    )


def try_tower(planned: TowerToExport, attempt: Attempt, config_text: str, on_stage: OnStage) -> TowerResult:
    """Export one tower; whatever goes wrong becomes its failure."""
    name_process(f"{planned.name} tower")
    evidence = Evidence(attempt.workspace / planned.name / EVIDENCE)
    clock = StageClock(planned.name, on_stage, within=partial(limits_of, attempt, planned.name))
    try:
        with RunnerProcess(attempt.workspace) as runner:
            exported = export_tower(planned, attempt, config_text, clock, Attendants(evidence, runner))
    except Exception as error:
        log.exception("tower_failed", extra={"tower": planned.name})
        evidence.write(error)
        return TowerResult(planned=planned, failure=Failure.of(as_out_of_memory(error) or error))
    return TowerResult(planned=planned, exported=exported)


def export_tower(
    planned: TowerToExport, attempt: Attempt, text: str, clock: StageClock, attendants: Attendants
) -> ExportedTower:
    """One tower through every stage; returns only what has passed the gate."""
    spec, name, evidence = attempt.spec, planned.name, attendants.evidence
    folder = attempt.workspace / name
    folder.mkdir(exist_ok=True)  # there may be notes of its tables in it
    with clock.stage(Stage.CONFIG):
        device = require_target(spec.targets[0])
        blueprint = blueprint_of(planned, spec, text)
        tower = blueprint.build()
    with clock.stage(Stage.CHECKPOINT):
        filled, checkpoint_source = fill(blueprint, tower, spec, attempt.workspace)
        lowered = lower(filled, device, tolerance=spec.fp32_tolerance)
        tower = lowered.tower
    with clock.stage(Stage.ROWS):
        rows, rows_source = open_rows(blueprint.planned, spec)
        items = open_items(blueprint.planned, spec, folder)
        inputs = {name: each.to(device) for name, each in trace_inputs(rows, tower.plan).items()}
        evidence.keep("sizes.txt", partial(sizes_text, inputs))
        blueprint.try_out(tower, inputs)
        inferred = infer_shape_rules(tower, rows, device, allowed=spec.allow_inferred_ops)
    packaging = packaging_of(tower, spec)
    packaged = package_tower(
        PackageOrder(
            tower=tower,
            parts=packaging.parts,
            inputs=packaging.entering(inputs),
            lookup=packaging.lookup,
            agreeing=partial(agreeing_batches, rows, tower.plan),
            contradicting=partial(contradicting_batches, rows, tower.plan),
            device=device,
            folder=folder,
            passes=tuple(each for each in spec.passes if each.tower is name),
            target=spec.targets[0],
            fp32=lowered.fp32,
            runner=attendants.runner,
            call_limit_s=attempt.stage_limit_s / 4,  # a hanging call fails before the stage's limit ends all
            on_traced=partial(look_at_programs, items, evidence),
        ),
        open_code_cache(attempt.code_cache) if attempt.code_cache else None,
        clock,
    )
    made = vectors_of(items, packaged, folder, clock)
    vectors = made.entry if made else None
    files = write_tower_files(name, blueprint.files(spec), packaged.parts, folder)
    demands = tower.served.demands(rows.take(1).tensors(tower.plan))
    return ExportedTower(
        entry=tower_entry(
            lowered, packaged, files, clock.seconds, demands=demands, inferred=inferred, vectors=vectors
        ),
        files={**files, **(made.files if made else {})},
        sources=(
            config_source(attempt.config_uri or spec.config_uri, text),
            checkpoint_source,
            rows_source,
        ),
        op_libraries=packaged.op_libraries,
    )


def look_at_programs(items: Items | None, evidence: Evidence, traced: Sequence[TracedPart]) -> None:
    """Keep the traced programs for a later failure; refuse vectors that the tower cannot make.

    Both before anything is compiled, which takes longest.
    """
    for part in traced:
        evidence.keep(f"{part.part.name}_program.txt", partial(str, part.program))
    if items is not None:
        plan_vectors(items, output_entries(traced[-1].program, traced[-1].part.tower.plan))


def vectors_of(
    items: Items | None, packaged: Packaged, folder: Path, clock: StageClock
) -> MaterialisedVectors | None:
    """Run the verified package over every item there is, where that is wanted."""
    if items is None:
        return None
    with clock.stage(Stage.ITEMS) as progress:
        return materialise_items(plan_vectors(items, packaged.outputs), packaged.gate, folder, progress)
