"""The audit log: one log line for every change that a caller requested."""

from service.access.callers import Caller
from telemetry.logging import logger

log = logger("slipway.audit")


def record(caller: Caller, action: str, subject: str, **details: str) -> None:
    """Log that `caller` did `action` to `subject`, a job, model or rule; call it once that is done."""
    log.info("audit", who=caller.name, action=action, subject=subject, **details)
