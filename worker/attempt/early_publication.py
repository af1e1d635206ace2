"""Artifacts that an attempt has published while it still judges their release, which may take minutes.

Only the attempt can tell the manifest's digest, and it may yet break off. So its report is read, and the
manifest signed, as soon as there is one.
"""

import threading
from dataclasses import dataclass, field
from functools import partial

from pydantic import ValidationError

from exporter.artifact.read import sign_artifact
from exporter.artifact.signing import SigningKey
from exporter.errors import ExportError
from exporter.outcome import ExportOutcome
from jobs.model import Job
from telemetry.logging import logger
from worker.attempt.attempt_result import AttemptResult, Cancelled, Finished, NoOutcome
from worker.attempt.workspace import Workspace, artifact_uri_of, open_output_of

log = logger(__name__)


@dataclass
class EarlyPublication:
    """The artifact of one attempt, from its publication to the attempt's end."""

    job: Job
    workspace: Workspace
    key: SigningKey | None
    _signing: list[threading.Thread] = field(default_factory=list)

    def sign(self) -> None:
        """Begin to sign what is published, once; whether that worked shows at the attempt's end."""
        if self.key is None or self._signing or (outcome := self._read_outcome()) is None:
            return
        self._signing.append(threading.Thread(target=self._sign, args=(outcome, self.key), daemon=True))
        self._signing[0].start()  # beside the watch, because a slow object store must not cost the lease

    def recover(self, result: AttemptResult) -> AttemptResult:
        """Return what the attempt had published before it broke off or was cancelled, else the result."""
        if isinstance(result, NoOutcome | Cancelled) and (outcome := self._read_outcome()) is not None:
            log.warning("release_not_judged", ending=type(result).__name__)
            return Finished(outcome)
        return result

    def _sign(self, outcome: ExportOutcome, key: SigningKey) -> None:
        uri, opened = artifact_uri_of(self.job), partial(open_output_of, self.job)
        try:
            sign_artifact(uri, self.job.id, key, outcome.manifest_sha256, opened=opened)
        except ExportError as error:
            log.warning("not_signed_early", message=error.message)

    def _read_outcome(self) -> ExportOutcome | None:
        """Return the attempt's report on what it has published; None if there is none."""
        try:
            outcome = self.workspace.read_outcome()
        except ValidationError:  # the end of the attempt reports it
            return None
        return outcome if outcome is not None and outcome.manifest_sha256 is not None else None
