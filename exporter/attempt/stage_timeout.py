"""Time limits of stages: ending a tower's process that hangs, and reading where it was."""

from contextlib import AbstractContextManager

from exporter.attempt.attempt import DIAGNOSTICS, Attempt
from exporter.distributed.time_limit import enforce_time_limit, read_overrun
from exporter.errors import StageTimedOut
from exporter.stages import Stage
from exporter.trace.trace_log import read_last_node

TRACE_LOG = "trace_nodes.txt"
_NOTE = "overrun.txt"


def limit_stage(attempt: Attempt, tower: str, stage: Stage) -> AbstractContextManager[None]:
    """End the process of the tower if `stage` takes longer than the attempt's limit."""
    return enforce_time_limit(
        attempt.stage_limit_s, attempt.workspace / tower / DIAGNOSTICS / _NOTE, what=stage
    )


def read_last_stage(attempt: Attempt, tower: str) -> str:
    """Return the stage that the tower's process was in when it ended; empty if it was in none."""
    note = attempt.workspace / tower / DIAGNOSTICS / _NOTE
    return note.read_text(errors="replace").partition("\n")[0] if note.exists() else ""


def describe_last_stage(attempt: Attempt, tower: str) -> str:
    """Return the end of a sentence that names the stage a process died in, and in a trace the graph node."""
    stage = read_last_stage(attempt, tower)
    return f" in stage {stage}{_describe_last_node(attempt, tower, stage)}" if stage else ""


def find_stage_timeout(attempt: Attempt, tower: str) -> StageTimedOut | None:
    """Return the error of a tower whose process was ended past a limit; None if it ended otherwise."""
    found = read_overrun(attempt.workspace / tower / DIAGNOSTICS / _NOTE)
    if found is None:
        return None
    stage, stack = found
    after = _describe_last_node(attempt, tower, stage)
    error = StageTimedOut(
        f"{tower} tower: stage {stage} took more than {attempt.stage_limit_s:g} s and was ended{after}",
        where=_innermost_line(stack),
    )
    error.report = stack
    return error


def _describe_last_node(attempt: Attempt, tower: str, stage: str) -> str:
    node = read_last_node(attempt.workspace / tower / DIAGNOSTICS / TRACE_LOG)
    return f"; the last graph node was {node}" if node and stage == Stage.TRACE else ""


def _innermost_line(stack: str) -> str:
    """Return the line of code that the main thread was at, which is the last thread of a stack dump."""
    threads = stack.split("(most recent call first):")
    lines = [line.strip() for line in threads[-1].splitlines() if line.strip().startswith("File ")]
    return lines[0] if lines else ""
