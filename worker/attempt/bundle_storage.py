"""Keeping bundles of failures, and saying in each failure where its bundle is."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.outcome import Failure
from exporter.spec import TowerName
from jobs.diagnostics.bundles import Bundles
from jobs.diagnostics.logs import JobLogs
from jobs.model import Job
from telemetry.logging import logger
from worker.attempt.attempt_result import AttemptResult, Finished, NoOutcome
from worker.attempt.bundle_zip import build_bundle
from worker.attempt.workspace import Workspace

log = logger(__name__)


@dataclass(frozen=True)
class BundleStorage:
    """Where bundles are kept, and what goes into each beside the workspace's own files."""

    bundles: Bundles | None  # None: nothing is kept
    logs: JobLogs
    secrets: Sequence[str]

    def store_bundles(self, ending: AttemptResult, job: Job, workspace: Workspace) -> AttemptResult:
        """The same ending, whose failures say where the bundles are that are kept of them."""
        match ending:
            case Finished(outcome):
                kept = {"failure": self._store_bundle(outcome.failure, None, job, workspace)}
                towers = tuple(
                    each.model_copy(
                        update={"failure": self._store_bundle(each.failure, each.tower, job, workspace)}
                    )
                    for each in outcome.towers
                )
                return Finished(outcome.model_copy(update={**kept, "towers": towers}))
            case NoOutcome(failure):
                return NoOutcome(self._store_bundle(failure, None, job, workspace) or failure)
            case _:
                return ending

    def _store_bundle(
        self, failure: Failure | None, tower: TowerName | None, job: Job, workspace: Workspace
    ) -> Failure | None:
        if failure is None or self.bundles is None:
            return failure
        try:
            lines = self.logs.read(job.id, tower)
            kept_at = self.bundles.put(
                job.id, tower, build_bundle(job, tower, failure, workspace, lines, self.secrets)
            )
        except Exception:  # whatever it is: the failure is told all the same
            log.exception("bundle_not_kept", tower=tower)
            return failure
        return failure.model_copy(update={"bundle_url": kept_at})
