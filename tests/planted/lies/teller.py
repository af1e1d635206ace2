"""The process of one telling: `python -m tests.planted.lies.teller ORDER ANSWER`.

It exports as a worker's rank does, with a lie planted by its name, and writes down what became of it. Nothing
is computed here before the towers' processes are forked, as threads would not survive the fork.
"""

import resource
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from exporter.attempt.attempt import Attempt
from exporter.distributed.fork_ranks import exit_process
from exporter.distributed.isolation import die_with_parent
from exporter.distributed.ranks import Ranks
from exporter.errors import ExportError
from exporter.minify import on_failure
from exporter.minify.on_failure import minify_programs
from exporter.outcome import ExportOutcome, Failure
from exporter.pipeline.export import export
from tests.exporter.stage_events import ignore_stages
from tests.planted.lies.catalogue import lie_named
from tests.planted.lies.telling import Answer, Order

PATIENCE_S = 900.0


def main() -> None:
    """Carry out the order in the file of the first argument; write the answer to that of the second."""
    die_with_parent()
    order_file, answer_file = map(Path, sys.argv[1:])
    order = Order.model_validate_json(order_file.read_text())
    with ExitStack() as planted:
        if order.lie is not None:
            lie = lie_named(order.lie)
            planted.enter_context(lie.plant())
            if lie.smallest:
                planted.enter_context(patch.object(on_failure, "minify_programs", _search_patiently))
        outcome = _export(order)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in used)
    answer_file.write_text(Answer(outcome=outcome, processor_s=seconds).model_dump_json())
    exit_process(0)


def _search_patiently(*given: Any, **named: Any) -> str:
    """Search for the smallest case for as long as a busy machine may take."""
    return minify_programs(*given, **named, budget_s=PATIENCE_S)


def _export(order: Order) -> ExportOutcome:
    order.workspace.mkdir()
    attempt = Attempt(
        job_id="job",
        spec=order.spec,
        workspace=order.workspace,
        families=(order.spec.family,) if order.spec.family else (),
        code_cache=order.code_cache,
    )
    try:
        outcome = export(attempt, Ranks(), ignore_stages)
    except ExportError as error:
        return ExportOutcome(failure=Failure.of(error))
    assert outcome is not None
    return outcome


if __name__ == "__main__":
    main()
