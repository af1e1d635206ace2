"""Supervise an attempt from start to end: start the ranks, watch them, and record what became of it."""

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from exporter.artifact.signing import SigningKey
from exporter.distributed.rendezvous import Rendezvous
from exporter.errors import ExportError
from exporter.outcome import Failure
from jobs.control.baselines import NO_CONTEXT, FindContext, ReleaseContext, find_release_context
from jobs.diagnostics.bundles import Bundles
from jobs.diagnostics.logs import JobLogs
from jobs.errors import ConfigNotFound, JobNotFound, LeaseLost, StoreUnavailable
from jobs.lease.leases import Holding, JoinedAttempt
from jobs.model import Job
from processes.settings import secret_values
from telemetry.logging import logger
from worker.attempt.attempt_result import AttemptResult, NoOutcome, forbid_retries, redact_failures
from worker.attempt.bundle_storage import BundleStorage
from worker.attempt.early_publication import EarlyPublication
from worker.attempt.finalize import WaitPolicy, clean_up_after_loss, finalize_artifact, sign_published
from worker.attempt.outcome import read_result, record_result
from worker.attempt.watch import RankWatch, WatchPolicy
from worker.attempt.workspace import Workspace, open_workspace
from worker.launch import Launcher

log = logger(__name__)

_POLL_S = 0.3
_STORE_RETRY_S = 1.0


class Supervisor:
    """Runs attempts in child processes; `stop` ends them all and hands their jobs back."""

    def __init__(  # noqa: PLR0913  all but one are keyword arguments
        self,
        launcher: Launcher,
        *,
        worker_dir: Path,
        time_limit: timedelta,
        logs: JobLogs,
        bundles: Bundles | None = None,
        signing_key: SigningKey | None = None,
        find_context: FindContext = find_release_context,
        poll_s: float = _POLL_S,
    ) -> None:
        """Keep workspaces below `worker_dir`; end an attempt after `time_limit`; store log lines in `logs`.

        Bundles of failures go to `bundles`, if there are any. Artifacts are signed with `signing_key` here
        and not in the attempt, which never sees the key. `find_context` finds the releases that a job's
        release gate needs.
        """
        self._launcher = launcher
        self._worker_dir = worker_dir
        self.signing_key = signing_key
        self._find_context = find_context
        self._secrets = secret_values()
        self._bundle_storage = BundleStorage(bundles, logs, self._secrets)
        self._stopping = threading.Event()
        self._watch_policy = WatchPolicy(
            time_limit=time_limit, logs=logs, secrets=self._secrets, poll_s=poll_s, stopping=self._stopping
        )

    def stop(self) -> None:
        self._stopping.set()

    def run(
        self,
        holding: Holding,
        on_beat: Callable[[], None] = lambda: None,
        *,
        traceparent: str | None = None,
        place: Rendezvous | None = None,
    ) -> Job | None:
        """Run the attempt and record its result; return None if the job was lost to another worker.

        `on_beat` is called several times a second while the attempt lives. The ranks' spans are children of
        `traceparent`. With a `place`, other hosts run some of the ranks and meet these there.
        """
        policy = WaitPolicy(stopped=self._stopping, on_beat=on_beat)
        try:
            result = self._run_and_finalize(holding, policy, traceparent, place)
            job = record_result(holding, result)
        except LeaseLost as error:
            log.warning("lease_lost", message=error.message)
            clean_up_after_loss(holding, policy)
            return None
        for tower in job.towers:
            if tower.failure is not None:
                log.warning("tower_failed", tower=tower.name, stage=tower.stage, code=tower.failure.code)
        log.info("attempt_ended", ending=type(result).__name__, state=job.state)
        return job

    def _run_and_finalize(
        self, holding: Holding, policy: WaitPolicy, traceparent: str | None, place: Rendezvous | None
    ) -> AttemptResult:
        try:
            config, context = self._read_store(holding, self._find_context)
        except ConfigNotFound as error:
            return finalize_artifact(NoOutcome(Failure.of(error)), holding, policy)
        with open_workspace(holding.job, config, self._worker_dir, traceparent, context) as workspace:
            early = EarlyPublication(holding.job, workspace, self.signing_key)

            def beat() -> None:
                policy.on_beat()
                early.sign()

            result = self._run_attempt(holding, workspace, beat, place)
            if not workspace.is_helper:
                result = early.recover(result)
                result = finalize_artifact(result, holding, policy)
                result = sign_published(result, holding, self.signing_key, policy)
            if place is not None and not place.was_called:
                # A retry on this host alone would wait for the others in vain.
                result = forbid_retries(result)
            result = redact_failures(self._secrets, result)
            return self._bundle_storage.store_bundles(result, holding.job, config, workspace)

    def _read_store(self, holding: Holding, find_context: FindContext) -> tuple[str, ReleaseContext]:
        """Return the text of the job's config, and the releases that its gate needs.

        Wait for a store that is away, as an attempt would.
        """
        while True:
            try:
                return holding.read_config(), find_context(holding.job, holding.store)
            except StoreUnavailable as error:
                log.warning("job_store_away", message=error.message)
                if self._stopping.wait(_STORE_RETRY_S):
                    raise

    def join(self, joined: JoinedAttempt, place: Rendezvous, on_beat: Callable[[], None]) -> None:
        """Run this host's ranks of another worker's attempt; that worker records the result."""
        try:
            config, _ = self._read_store(joined, lambda job, store: NO_CONTEXT)  # the leader judges
            with open_workspace(joined.job, config, self._worker_dir) as workspace:
                result = self._run_attempt(joined, workspace, on_beat, place)
            log.info("joined_attempt_ended", ending=type(result).__name__)
        except (LeaseLost, JobNotFound, ConfigNotFound) as error:  # ended, gone, another's, or about to fail
            log.info("joined_attempt_left", message=error.message)

    def _run_attempt(
        self,
        holding: Holding,
        workspace: Workspace,
        on_beat: Callable[[], None],
        place: Rendezvous | None = None,
    ) -> AttemptResult:
        ranks = holding.job.ranks
        log.info("attempt_started", ranks=ranks, workspace=str(workspace.path))
        try:
            process = self._launcher.start(workspace, ranks=ranks, place=place)
        except ExportError as error:
            return NoOutcome(Failure.of(error))
        watch = RankWatch(
            holding=holding, workspace=workspace, process=process, policy=self._watch_policy, on_beat=on_beat
        )
        try:
            result = watch.wait()
        finally:
            process.stop()
            watch.forward_logs()
        return result or read_result(workspace, process)
