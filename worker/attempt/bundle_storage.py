"""Store the bundles of failures, and note in each failure where its bundle is."""

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
    """Builds and stores a bundle for each failure of an attempt."""

    bundles: Bundles | None  # None: no bundles are stored
    logs: JobLogs
    secrets: Sequence[str]

    def store_bundles(
        self, result: AttemptResult, job: Job, config: str, workspace: Workspace
    ) -> AttemptResult:
        """Return the result with a `bundle_url` in each failure whose bundle could be stored."""
        match result:
            case Finished(outcome):
                stored = {"failure": self._store_bundle(outcome.failure, None, job, config, workspace)}
                towers = tuple(
                    each.model_copy(
                        update={
                            "failure": self._store_bundle(each.failure, each.tower, job, config, workspace)
                        }
                    )
                    for each in outcome.towers
                )
                return Finished(outcome.model_copy(update={**stored, "towers": towers}))
            case NoOutcome(failure):
                return NoOutcome(self._store_bundle(failure, None, job, config, workspace) or failure)
            case _:
                return result

    def _store_bundle(
        self, failure: Failure | None, tower: TowerName | None, job: Job, config: str, workspace: Workspace
    ) -> Failure | None:
        if failure is None or self.bundles is None:
            return failure
        try:
            lines = self.logs.read(job.id, tower)
            url = self.bundles.put(
                job.id, tower, build_bundle(job, config, tower, failure, workspace, lines, self.secrets)
            )
        except Exception:  # the failure is reported in any case
            log.exception("bundle_not_stored", tower=tower)
            return failure
        return failure.model_copy(update={"bundle_url": url})
