"""Run all ranks of an attempt on this machine: `python -m worker.attempt.ranks <workspace> <ranks>`.

On one of several hosts (see `worker.hosts.host`), these are every `--step`-th rank from `--first` on, and
they meet the others at `--meeting`. Imports take longer than most of a warm export, so they happen here,
once, before the ranks are forked; and beside them, in another process, those of processes that run packages.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from exporter.distributed.fork_ranks import exit_process, run_ranks
from exporter.distributed.isolation import collect_rarely, die_with_parent
from exporter.stages import OnStage
from exporter.verify.runner_process import make_server


def main(wrap_report: Callable[[OnStage], OnStage] = lambda report: report) -> None:
    """Run the ranks; exit with 1 when one of them died or failed without reporting an outcome."""
    die_with_parent()
    collect_rarely()
    parser = argparse.ArgumentParser(
        prog="worker.attempt.ranks", description="Run all ranks of one export attempt."
    )
    parser.add_argument("workspace", type=Path)
    parser.add_argument("ranks", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--meeting", metavar="URI")
    given = parser.parse_args()
    here = range(given.first, given.ranks, given.step)
    meeting = given.meeting or (given.workspace / "meeting").absolute().as_uri()
    with make_server() as runners:
        from worker.attempt.rank import run_rank  # takes seconds, in which the server does as much

        run = partial(run_rank, given.workspace, wrap_report=wrap_report, runners=runners)
        status = run_ranks(run, given.ranks, rendezvous=meeting, here=here)
    exit_process(status)


if __name__ == "__main__":
    main()
