"""Prove to the ranks of an attempt that the job is still theirs, by a file that their supervisor renews.

Ranks have no access to the job store. If the supervisor loses it, stalls or dies, the proof expires at the
latest when the lease does, by a clock that nobody sets. Without a valid proof, ranks publish nothing.
"""

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from exporter.errors import LeaseUnproven
from exporter.spec import Frozen
from jobs.lease.lease_expiry import since_boot
from telemetry.logging import logger

PATIENCE = timedelta(minutes=5)  # the job store may be away for a while, and the attempt has taken minutes

log = logger(__name__)
clock = since_boot  # the clock of proofs

_NAME = "lease.json"
_LARGEST_MARGIN_S = 10.0
_WORTH_WRITING_S = 0.5
_LOOK_S = 0.1


class _Proof(Frozen):
    until: float  # seconds since boot
    margin: float  # seconds that must remain: uploading the manifest takes a while


@dataclass
class LeaseProof:
    """Writes the proof; used by the supervisor."""

    workspace: Path
    length: timedelta  # of the lease
    _proved_until: float = 0.0

    def renew(self, asked_at: float, remaining: timedelta) -> None:
        """Extend the proof: the lease had `remaining` to go at `asked_at`, in seconds since boot."""
        until = asked_at + remaining.total_seconds()
        if abs(until - self._proved_until) < _WORTH_WRITING_S:
            return
        proof = _Proof(until=until, margin=min(_LARGEST_MARGIN_S, self.length.total_seconds() / 4))
        partial = self.workspace / f"{_NAME}.partial"
        try:
            partial.write_text(proof.model_dump_json())
            partial.rename(self.workspace / _NAME)
        except OSError:  # a full disk, which the ranks will report; without proof they publish nothing
            log.warning("lease_not_proved", exc_info=True)
            return
        self._proved_until = until

    def withdraw(self) -> None:
        """Remove the proof: another worker holds the job now."""
        (self.workspace / _NAME).unlink(missing_ok=True)


def await_proof(workspace: Path, patience: timedelta = PATIENCE) -> timedelta:
    """Wait until the lease is proven and return how long it lasts; used by the ranks.

    Raises:
        LeaseUnproven: there was no valid proof for `patience`.
    """
    deadline = time.monotonic() + patience.total_seconds()
    while (remaining := _remaining(workspace / _NAME)) is None:
        if time.monotonic() > deadline:
            raise LeaseUnproven(f"nobody renewed the lease of this attempt for {patience}")
        time.sleep(_LOOK_S)
    return remaining


def _remaining(path: Path) -> timedelta | None:
    """Return how long the lease lasts; None if that is unknown, or too short to begin anything."""
    try:
        proof = _Proof.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    remaining = proof.until - clock()
    return timedelta(seconds=remaining) if remaining > proof.margin else None
