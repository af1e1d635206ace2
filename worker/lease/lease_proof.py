"""How the ranks of an attempt know that the job is still theirs: a file that their supervisor renews.

Ranks never see the job store. Should the supervisor lose it, stall or die, the proof runs out at the latest
when the lease does, by a clock that nobody sets; and what has run out publishes nothing.
"""

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from exporter.errors import LeaseUnproven
from exporter.spec import Frozen
from jobs.lease.lease_expiry import since_boot
from telemetry.logging import logger

PATIENCE = timedelta(minutes=5)  # a job store may be away for some time, and the attempt has cost minutes

log = logger(__name__)
clock = since_boot  # by which proofs run out

_NAME = "lease.json"
_LARGEST_MARGIN_S = 10.0
_WORTH_WRITING_S = 0.5
_LOOK_S = 0.1


class _Proof(Frozen):
    until: float  # seconds of the clock that runs since boot
    margin: float  # what must be left of it, in seconds: the manifest is on its way for a while


@dataclass
class LeaseProof:
    """The supervisor's side: tells the ranks until when the job is theirs."""

    workspace: Path
    length: timedelta  # of the lease
    _proved_until: float = 0.0

    def renew(self, asked_at: float, remaining: timedelta) -> None:
        """The lease had `remaining` to go when the store was asked at `asked_at`, see `lease_expiry`."""
        until = asked_at + remaining.total_seconds()
        if abs(until - self._proved_until) < _WORTH_WRITING_S:
            return
        proof = _Proof(until=until, margin=min(_LARGEST_MARGIN_S, self.length.total_seconds() / 4))
        partial = self.workspace / f"{_NAME}.partial"
        try:
            partial.write_text(proof.model_dump_json())
            partial.rename(self.workspace / _NAME)
        except OSError:  # a full disk, which the ranks will tell of; unproven, they publish nothing
            log.warning("lease_not_proved", exc_info=True)
            return
        self._proved_until = until

    def withdraw(self) -> None:
        """The job is another's now."""
        (self.workspace / _NAME).unlink(missing_ok=True)


def await_proof(workspace: Path, patience: timedelta = PATIENCE) -> timedelta:
    """The ranks' side: return once the job is certainly theirs, and for how long it is.

    Raises:
        LeaseUnproven: nobody said so for `patience`.
    """
    deadline = time.monotonic() + patience.total_seconds()
    while (remaining := _remaining(workspace / _NAME)) is None:
        if time.monotonic() > deadline:
            raise LeaseUnproven(f"nobody renewed the lease of this attempt for {patience}")
        time.sleep(_LOOK_S)
    return remaining


def _remaining(path: Path) -> timedelta | None:
    """How long the job is the attempt's yet; None if that is too short to begin anything, or unknown."""
    try:
        proof = _Proof.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    remaining = proof.until - clock()
    return timedelta(seconds=remaining) if remaining > proof.margin else None
