"""The end of an export: towers are uploaded as they pass and published together, by one manifest."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from exporter.artifact.errors import ManifestWrong
from exporter.artifact.read import recover_published_outcome, successful_outcome
from exporter.artifact.upload import manifest_digest, publish_manifest, remove_uploads, upload_tower
from exporter.attempt.attempt import Attempt, TowerResult
from exporter.attempt.stage_timeout import find_stage_timeout, limit_stage
from exporter.distributed.isolation import ForkedChild, start_child
from exporter.errors import AttemptFailed, ExportError
from exporter.manifest import Manifest
from exporter.outcome import ExportOutcome, Failure, TowerOutcome
from exporter.pipeline.manifest_entry import make_manifest
from exporter.stages import OnStage, Stage, StageClock
from exporter.towers.plan import TowerToExport

log = logging.getLogger(__name__)


def export_and_upload_towers(
    planned: Sequence[TowerToExport],
    export: Callable[[TowerToExport], TowerResult],
    attempt: Attempt,
    on_stage: OnStage,
) -> list[TowerResult]:
    """Export towers one after the other; upload each that passed while the next ones are exported."""
    ended: list[TowerResult | ForkedChild[TowerResult]] = []
    for tower in planned:
        result = export(tower)
        if result.exported is None:
            ended.append(result)
        else:
            send = partial(upload_exported_tower, result, attempt, on_stage)
            ended.append(start_child(send, on_death=partial(report_dead_upload, result, attempt)))
    return [each.result() if isinstance(each, ForkedChild) else each for each in ended]


def upload_exported_tower(result: TowerResult, attempt: Attempt, on_stage: OnStage) -> TowerResult:
    """Upload the files of an exported tower; return its result with them, or with the failure."""
    assert result.exported is not None
    entry, files = result.exported.entry, result.exported.files
    try:
        clock = StageClock(entry.name, on_stage, within=partial(limit_stage, attempt, entry.name))
        with clock.stage(Stage.PUBLISH) as report:
            attempt.await_lease()  # a straggler's uploads could collide with its successor's
            uploaded = upload_tower(
                entry,
                files,
                attempt.artifact_uri,
                replace_unfinished=attempt.replace_unfinished,
                on_progress=lambda sent, total: report(sent / total, f"{sent:,} of {total:,} bytes"),
                may_upload=attempt.await_lease,
                opened=attempt.open_output,
            )
    except ExportError as error:
        log.exception("tower_not_uploaded", extra={"tower": entry.name})
        return replace(result, upload_failure=Failure.of(error))
    return replace(result, uploaded=uploaded)


def report_dead_upload(result: TowerResult, attempt: Attempt, how: str) -> TowerResult:
    """Return the result of a tower whose upload ended with the process that ran it, as `how` says."""
    name = result.planned.name
    error = find_stage_timeout(attempt, name) or AttemptFailed(
        f"the process that sent the {name} tower {how}"
    )
    return replace(result, upload_failure=Failure.of(error))


def publish_towers(results: Sequence[TowerResult], attempt: Attempt) -> ExportOutcome:
    """Publish the uploaded towers as one artifact; if one could not be uploaded, remove and publish none."""
    exported = [result.exported for result in results if result.exported is not None]
    uploaded = tuple(chain.from_iterable(result.uploaded for result in results))
    failed = tuple(
        TowerOutcome(tower=result.planned.name, failure=result.failure)
        for result in results
        if result.failure is not None
    )
    if upload_failure := next((result.upload_failure for result in results if result.upload_failure), None):
        remove_uploads(uploaded, attempt.artifact_uri, opened=attempt.open_output)
        return ExportOutcome(failure=upload_failure)
    if not exported:
        return ExportOutcome(towers=failed)
    manifest = make_manifest(exported, results[0].planned, attempt)
    _require_same_towers(manifest, results, attempt)
    manifest_uri = publish_manifest(
        manifest,
        uploaded,
        attempt.artifact_uri,
        replace_unfinished=attempt.replace_unfinished,
        before_manifest=attempt.await_lease,
        opened=attempt.open_output,
    )
    published = tuple(successful_outcome(tower.entry, attempt.artifact_uri) for tower in exported)
    return ExportOutcome(
        towers=published + failed, manifest_uri=manifest_uri, manifest_sha256=manifest_digest(manifest)
    )


def _require_same_towers(manifest: Manifest, results: Sequence[TowerResult], attempt: Attempt) -> None:
    """Check that each tower stands in the manifest under its own name, as it was exported.

    Raises:
        ManifestWrong: naming the tower; the uploaded files have been removed.
    """
    exported = [(each.planned.name, each.exported.entry) for each in results if each.exported is not None]
    found = [(entry.name, entry) for entry in manifest.towers]
    if found == exported:
        return
    uploaded = [file for result in results for file in result.uploaded]
    remove_uploads(uploaded, attempt.artifact_uri, opened=attempt.open_output)
    odd = [name for name, entry in exported if (name, entry) not in found]
    raise ManifestWrong(
        f"the manifest does not have the {' and '.join(odd or [name for name, _ in exported])} tower as it "
        "was exported",
        where="towers",
    )


def find_earlier_outcome(attempt: Attempt, planned: Sequence[TowerToExport]) -> ExportOutcome | None:
    """Return the outcome of an earlier attempt that published and then died unheard; None if there is none.

    Raises:
        InvalidArtifact: a manifest of another job is there.
    """
    towers = [tower.name for tower in planned]
    return recover_published_outcome(
        attempt.artifact_uri, attempt.job_id, towers, attempt.await_lease, opened=attempt.open_output
    )
