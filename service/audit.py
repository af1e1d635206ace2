"""A line in the log for every change that a caller asked for."""

from service.access.callers import Caller
from telemetry.logging import logger

log = logger("slipway.audit")


def record(caller: Caller, action: str, subject: str) -> None:
    """Who did what, to which job, model or rule; written once it is done."""
    log.info("audit", who=caller.name, action=action, subject=subject)
