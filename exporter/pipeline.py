"""export(): the table of contents of an export, from a spec to a published artifact."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from exporter.aoti.architecture import require_target
from exporter.aoti.trace_log import nodes_logged
from exporter.attempt import EVIDENCE, Attempt, Evidence, ExportedTower, TowerResult
from exporter.blueprint import Blueprint, ConfiguredTower
from exporter.data.batch import trace_inputs
from exporter.describe import manifest_of, outputs_of, tower_entry, write_tower_files
from exporter.distributed.isolation import isolated
from exporter.distributed.ranks import Ranks
from exporter.errors import InvalidArtifact, TowerDied
from exporter.families.declared import open_tower
from exporter.items.materialise import Materialised, materialise
from exporter.items.wanted import WantedVectors, open_items, plan_vectors
from exporter.manifest import MANIFEST_NAME, TowerEntry
from exporter.outcome import ExportOutcome, Failure, TowerOutcome
from exporter.overruns import TRACE_LOG, limits_of, overran
from exporter.parts import TracedPart, parts_of, sizes_text, trace_parts
from exporter.planning import TowerToExport, UnopenedTower, plan_export, read_config
from exporter.proving import infer_shape_rules, prove
from exporter.publish import publish, read_manifest
from exporter.sources import config_source, fetch_checkpoint_once, open_rows
from exporter.spec import ExportSpec
from exporter.stages import OnStage, Stage, StageClock
from exporter.storage.store import join_uri
from exporter.verify.gate import Gate

log = logging.getLogger(__name__)


def export(attempt: Attempt, ranks: Ranks, on_stage: OnStage) -> ExportOutcome | None:
    """Export the towers that are this rank's; on rank 0 also publish all of them as one artifact.

    Each tower has a process of its own. Its failure, or its death, is part of the outcome and does not stop
    the others. Returns None on every rank
    but 0.

    Raises:
        ExportError: nothing could be tried (bad spec or config), or nothing could be published.
    """
    config_text = read_config(attempt.spec)
    planned = plan_export(attempt.spec, config_text, families=attempt.families)
    if attempt.replace_unfinished and (earlier := published_earlier(attempt, planned)):
        return earlier if ranks.rank == 0 else None
    results = [
        isolated(
            partial(try_tower, tower, attempt, config_text, on_stage),
            died=partial(tower_died, tower, attempt),
        )
        for tower in ranks.share_out(planned)
    ]
    gathered = ranks.gather(results)
    if gathered is None:
        return None
    by_name = {result.planned.name: result for rank_results in gathered for result in rank_results}
    return publish_towers([by_name[tower.name] for tower in planned], attempt, on_stage)


def try_tower(planned: TowerToExport, attempt: Attempt, config_text: str, on_stage: OnStage) -> TowerResult:
    """Export one tower; whatever goes wrong becomes its failure."""
    evidence = Evidence(attempt.workspace / planned.name / EVIDENCE)
    try:
        exported = export_tower(planned, attempt, config_text, on_stage, evidence)
    except Exception as error:
        log.exception("tower_failed", extra={"tower": planned.name})
        evidence.write(error)
        return TowerResult(planned=planned, failure=Failure.of(error))
    return TowerResult(planned=planned, exported=exported)


def tower_died(planned: TowerToExport, attempt: Attempt, how: str) -> TowerResult:
    """The result of a tower whose process ended before it could say anything."""
    error = overran(attempt, planned.name) or TowerDied(
        f"the process that exported the {planned.name} tower {how}"
    )
    return TowerResult(planned=planned, failure=Failure.of(error))


def export_tower(
    planned: TowerToExport, attempt: Attempt, config_text: str, on_stage: OnStage, evidence: Evidence
) -> ExportedTower:
    """One tower through every stage; returns only what has passed the gate."""
    spec, name = attempt.spec, planned.name
    clock = StageClock(name, on_stage, within=partial(limits_of, attempt, name))
    folder = attempt.workspace / name
    folder.mkdir()
    with clock.stage(Stage.CONFIG):
        device = require_target(spec.targets[0])
        blueprint = blueprint_of(planned, spec, config_text)
        tower = blueprint.build()
    with clock.stage(Stage.CHECKPOINT):
        checkpoint, checkpoint_source = fetch_checkpoint_once(
            spec, attempt.workspace, averaged=tower.config.pipeline.averaged_weights
        )
        blueprint.fill(tower, checkpoint)
        tower.module.to(device)
    with clock.stage(Stage.ROWS):
        rows, rows_source = open_rows(blueprint.planned, spec)
        items = open_items(blueprint.planned, spec, folder)
    with clock.stage(Stage.TRACE) as progress, nodes_logged(folder / EVIDENCE / TRACE_LOG):
        inputs = {name: each.to(device) for name, each in trace_inputs(rows, tower.plan).items()}
        evidence.keep("sizes.txt", partial(sizes_text, inputs))
        blueprint.try_out(tower, inputs)
        inferred = infer_shape_rules(tower, rows, allowed=spec.allow_inferred_ops)
        passes = [each for each in spec.passes if each.tower is name]
        parts = parts_of(tower, spec.mode, max_batch_size=spec.max_batch_size)
        traced = trace_parts(parts, inputs, device, progress, passes=passes)
        keep_programs(traced, evidence)
        wanted = None if items is None else plan_vectors(items, outputs_of(traced))
    proven = prove(tower, traced, rows, folder, clock, passes=passes, target=spec.targets[0])
    made = None if wanted is None else vectors_of_all_items(wanted, proven.gate, folder, clock)
    files = write_tower_files(name, blueprint.files(spec), proven.compiled, folder)
    demands = tower.served.demands(rows.take(1).tensors(tower.plan))
    return ExportedTower(
        entry=tower_entry(
            tower,
            proven.compiled,
            files,
            proven.report,
            clock.seconds,
            demands=demands,
            vectors=made.entry if made else None,
        ).model_copy(update={"inferred_ops": inferred}),
        files={**files, **(made.files if made else {})},
        sources=(
            config_source(attempt.config_uri or spec.config_uri, config_text),
            checkpoint_source,
            rows_source,
        ),
        op_libraries=proven.op_libraries,
    )


def keep_programs(traced: Sequence[TracedPart], evidence: Evidence) -> None:
    """A failure behind tracing will want to be read beside what was traced."""
    for part in traced:
        evidence.keep(f"{part.part.name}_program.txt", partial(str, part.program))


def vectors_of_all_items(wanted: WantedVectors, gate: Gate, folder: Path, clock: StageClock) -> Materialised:
    """Run the verified package over every item there is."""
    with clock.stage(Stage.ITEMS) as progress:
        return materialise(wanted, gate, folder, progress)


def blueprint_of(planned: TowerToExport, spec: ExportSpec, config_text: str) -> Blueprint:
    """How to build the tower; the code of a family of one's own is loaded here, and nowhere before."""
    if isinstance(planned, UnopenedTower):
        return open_tower(planned, spec, config_text)
    return ConfiguredTower(planned)


def publish_towers(results: list[TowerResult], attempt: Attempt, on_stage: OnStage) -> ExportOutcome:
    """Publish the exported towers and their manifest, together; failed ones leave nothing behind."""
    exported = [result.exported for result in results if result.exported is not None]
    failed = tuple(
        TowerOutcome(tower=result.planned.name, failure=result.failure)
        for result in results
        if result.failure is not None
    )
    if not exported:
        return ExportOutcome(towers=failed)
    root = artifact_root(attempt)
    with ExitStack() as publishing:
        progress = [
            publishing.enter_context(StageClock(tower.entry.name, on_stage).stage(Stage.PUBLISH))
            for tower in exported
        ]
        manifest_uri = publish(
            manifest_of(exported, results[0].planned, attempt),
            {path: local for tower in exported for path, local in tower.files.items()},
            root,
            replace_unfinished=attempt.replace_unfinished,
            on_sent=lambda sent, total: [
                report(sent / total, f"{sent:,} of {total:,} bytes") for report in progress
            ],
        )
    published = tuple(succeeded(tower.entry, root) for tower in exported)
    return ExportOutcome(towers=published + failed, manifest_uri=manifest_uri)


def published_earlier(attempt: Attempt, planned: Sequence[TowerToExport]) -> ExportOutcome | None:
    """What an attempt published that died before it could say so; None if there was none."""
    root = artifact_root(attempt)
    try:
        manifest = read_manifest(root)
    except InvalidArtifact:
        return None
    entries = {entry.name: entry for entry in manifest.towers}
    lost = Failure(code="attempt_failed", message="failed in an earlier attempt that could not say why")
    return ExportOutcome(
        towers=tuple(
            succeeded(entries[tower.name], root)
            if tower.name in entries
            else TowerOutcome(tower=tower.name, failure=lost)
            for tower in planned
        ),
        manifest_uri=join_uri(root, MANIFEST_NAME),
    )


def succeeded(entry: TowerEntry, root: str) -> TowerOutcome:
    return TowerOutcome(tower=entry.name, entry=entry, package_uri=join_uri(root, entry.package.path))


def artifact_root(attempt: Attempt) -> str:
    return f"{attempt.spec.output_uri.rstrip('/')}/{attempt.folder or attempt.job_id}"
