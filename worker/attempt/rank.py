"""Run one rank of an attempt: `python -m worker.attempt.rank <workspace>`; for several see `ranks`.

It reads `attempt.json` and reports stages as lines of `events-<rank>.jsonl`. Rank 0 writes `outcome.json`,
and every rank then exits with 0. Another rank that fails before it can meet the others writes
`failed-<rank>.json` and exits with 1, which ends them all. If neither file is there, the attempt has crashed.
"""

import argparse
import logging
import os
import sys
from functools import partial
from pathlib import Path

from structlog.contextvars import bind_contextvars

from exporter.attempt.attempt import Attempt
from exporter.distributed.fork_ranks import exit_process
from exporter.distributed.fork_server import ForkServer
from exporter.distributed.isolation import die_with_parent
from exporter.distributed.ranks import Ranks
from exporter.errors import ExportError
from exporter.outcome import ExportOutcome, Failure
from exporter.pipeline.export import export
from exporter.stages import OnStage
from exporter.storage.uris import require_sound_uris
from telemetry.choices import LogFormat, LogLevel
from telemetry.logging import configure_logging
from telemetry.setup import make_tracing
from worker.attempt.allowances import input_limits, offer_families
from worker.attempt.reports import WrapReport, make_reporter
from worker.attempt.workspace import AttemptFile, places_of, write_failure, write_outcome
from worker.lease.lease_proof import await_proof
from worker.settings import AttemptSettings, RankSettings

log = logging.getLogger(__name__)


def main() -> None:
    """Run the rank that the command line and torchrun's variables describe; by default the only one."""
    parser = argparse.ArgumentParser(
        prog="worker.attempt.rank", description="Run one rank of one export attempt."
    )
    parser.add_argument("workspace", type=Path)
    settings = RankSettings()
    run_rank(parser.parse_args().workspace, Ranks(rank=settings.rank, size=settings.world_size))
    exit_process(0)


def run_rank(
    workspace: Path,
    ranks: Ranks,
    wrap_report: WrapReport = lambda report: report,
    runners: ForkServer | None = None,
) -> None:
    """Run one rank in this process.

    `wrap_report` may wrap the function that reports stages: fault tests stop a rank there. `runners` starts
    the processes that run packages.
    """
    die_with_parent()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # one stream, so that marks and lines keep their order
    configure_logging(LogFormat.CONSOLE, LogLevel.INFO)  # for the people who read the job's log
    request = AttemptFile.model_validate_json((workspace / "attempt.json").read_text())
    settings, shared = RankSettings(), AttemptSettings()
    bind_contextvars(job_id=request.job_id, attempt=request.attempt)
    # At once, because a forked rank has no thread that could send spans in the background.
    tracing = make_tracing(settings.otlp_endpoint, "slipway-rank", at_once=True)
    attempt = Attempt(
        job_id=request.job_id,
        spec=request.spec,
        workspace=workspace,
        places=places_of(request.uris),
        config_uri=request.config_uri,
        folder=request.folder,
        families=offer_families(settings, shared),
        code_cache=shared.code_cache_uri,
        stage_limit_s=shared.stage_time_limit.total_seconds(),
        replace_unfinished=request.replace_unfinished,
        await_lease=partial(await_proof, workspace),
        runners=runners,
        baseline=request.context.baseline,
        siblings=request.context.siblings,
        obstacle=request.context.obstacle,
        on_published=partial(write_outcome, workspace=workspace),
    )
    with (
        (workspace / f"events-{ranks.rank}.jsonl").open("a", buffering=1) as events,
        tracing.span("rank", parent=request.traceparent, attributes={"slipway.rank": ranks.rank}) as span,
    ):
        report = wrap_report(make_reporter(events, tracing, span.traceparent))
        outcome = run_export(attempt, shared, ranks, report)
    tracing.close()
    if ranks.rank == 0 and outcome is not None:
        write_outcome(outcome, workspace)
    elif outcome is not None and outcome.failure is not None:  # rank 0 would wait for this rank
        write_failure(outcome.failure, ranks.rank, workspace)
        exit_process(1)


def run_export(
    attempt: Attempt, shared: AttemptSettings, ranks: Ranks, report: OnStage
) -> ExportOutcome | None:
    """Check the job's paths and input sizes, then export; an error of the whole export is its outcome."""
    try:
        require_sound_uris(attempt.spec)
        attempt.places.require_within(attempt.spec)
        input_limits(shared).require(attempt.spec)
        # Now, and not only after everything is compiled.
        attempt.open_output(attempt.spec.output_uri).require_writable()
        return export(attempt, ranks, report)
    except ExportError as error:
        log.exception("export_failed")
        return ExportOutcome(failure=Failure.of(error))


if __name__ == "__main__":
    main()
