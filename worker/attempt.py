"""One rank of one attempt: `torchrun -m worker.attempt <workspace>`.

Reads `attempt.json`, reports stages as lines of `events-<rank>.jsonl`; rank 0 writes `outcome.json`,
and every rank then exits with 0. Without that file, the attempt has crashed.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

from exporter.attempt import Attempt
from exporter.distributed.ranks import Ranks
from exporter.errors import ExportError
from exporter.outcome import ExportOutcome, Failure
from exporter.pipeline import export
from exporter.stages import OnStage, StageEvent
from worker.logs import log_lines
from worker.settings import RankSettings
from worker.workspace import AttemptFile

log = logging.getLogger(__name__)


def main() -> None:
    parser = argparse.ArgumentParser(prog="worker.attempt", description="Run one rank of one export attempt.")
    parser.add_argument("workspace", type=Path)
    workspace: Path = parser.parse_args().workspace
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # one stream, so that marks and lines keep their order
    logging.basicConfig(level=logging.INFO)
    request = AttemptFile.model_validate_json((workspace / "attempt.json").read_text())
    settings = RankSettings()
    attempt = Attempt(
        job_id=request.job_id,
        spec=request.spec,
        workspace=workspace,
        config_uri=request.config_uri,
        folder=request.folder,
        replace_unfinished=request.replace_unfinished,
    )
    with (workspace / f"events-{settings.rank}.jsonl").open("a", buffering=1) as events:

        def report(event: StageEvent) -> None:
            events.write(event.model_dump_json() + "\n")
            sys.stderr.write("".join(f"{line}\n" for line in log_lines(event)))

        outcome = run(attempt, Ranks(rank=settings.rank, size=settings.world_size), report)
    if outcome is not None:
        write_outcome(outcome, workspace)


def run(attempt: Attempt, ranks: Ranks, report: OnStage) -> ExportOutcome | None:
    """Export; a failure of the whole becomes the outcome."""
    try:
        return export(attempt, ranks, report)
    except ExportError as error:
        log.exception("export_failed")
        return ExportOutcome(failure=Failure.of(error)) if ranks.rank == 0 else None


def write_outcome(outcome: ExportOutcome, workspace: Path) -> None:
    """Write outcome.json whole or not at all."""
    partial = workspace / "outcome.json.partial"
    partial.write_text(outcome.model_dump_json(indent=2))
    partial.rename(workspace / "outcome.json")


if __name__ == "__main__":
    main()
