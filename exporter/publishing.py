"""The end of an export: what passed is published together, what failed leaves nothing behind."""

from collections.abc import Sequence
from contextlib import ExitStack

from exporter.attempt import Attempt, TowerResult
from exporter.describe import manifest_of
from exporter.errors import InvalidArtifact
from exporter.manifest import MANIFEST_NAME, TowerEntry
from exporter.outcome import ExportOutcome, Failure, TowerOutcome
from exporter.planning import TowerToExport
from exporter.publish import publish, read_manifest
from exporter.stages import OnStage, Stage, StageClock
from exporter.storage.store import join_uri


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
            before_manifest=attempt.await_lease,
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
    return TowerOutcome(
        tower=entry.name,
        entry=entry,
        package_uri=join_uri(root, entry.package.path),
        cold=entry.code == "cold",
    )


def artifact_root(attempt: Attempt) -> str:
    return f"{attempt.spec.output_uri.rstrip('/')}/{attempt.folder or attempt.job_id}"
