"""How long a stage may take, and what is said of one that took longer."""

from contextlib import AbstractContextManager

from exporter.attempt.attempt import EVIDENCE, Attempt
from exporter.distributed.time_limit import enforce_time_limit, read_overrun
from exporter.errors import StageTimedOut
from exporter.stages import Stage
from exporter.trace.trace_log import read_last_node

TRACE_LOG = "trace_nodes.txt"
_NOTE = "overrun.txt"


def limits_of(attempt: Attempt, tower: str, stage: Stage) -> AbstractContextManager[None]:
    """End the process of the tower where it hangs in `stage`."""
    return enforce_time_limit(attempt.stage_limit_s, attempt.workspace / tower / EVIDENCE / _NOTE, what=stage)


def last_stage(attempt: Attempt, tower: str) -> str:
    """The stage that the tower's process was in when it ended; nothing if it was in none."""
    note = attempt.workspace / tower / EVIDENCE / _NOTE
    return note.read_text(errors="replace").partition("\n")[0] if note.exists() else ""


def died_at(attempt: Attempt, tower: str) -> str:
    """Where the process died, to end a sentence with: the stage, and in a trace the last graph node."""
    stage, node = last_stage(attempt, tower), read_last_node(attempt.workspace / tower / EVIDENCE / TRACE_LOG)
    after = f"; the last graph node was {node}" if node and stage == Stage.TRACE else ""
    return f" in stage {stage}{after}" if stage else ""


def overran(attempt: Attempt, tower: str) -> StageTimedOut | None:
    """What to say of a tower whose process was ended past a limit; None if it ended otherwise."""
    evidence = attempt.workspace / tower / EVIDENCE
    found = read_overrun(evidence / _NOTE)
    if found is None:
        return None
    stage, stack = found
    node = read_last_node(evidence / TRACE_LOG)
    after = f"; the last graph node was {node}" if node and stage == Stage.TRACE else ""
    error = StageTimedOut(
        f"{tower} tower: stage {stage} took more than {attempt.stage_limit_s:g} s and was ended{after}",
        where=_innermost(stack),
    )
    error.report = stack
    return error


def _innermost(stack: str) -> str:
    """The line the main thread was at: the last thread that is listed."""
    threads = stack.split("(most recent call first):")
    lines = [line.strip() for line in threads[-1].splitlines() if line.strip().startswith("File ")]
    return lines[0] if lines else ""
