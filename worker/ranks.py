"""All ranks of an attempt on this machine: `python -m worker.ranks <workspace> <ranks>`.

What a rank imports takes longer than most of what it does with code that is known: it is imported here, once.
"""

import argparse
from functools import partial
from pathlib import Path

from exporter.distributed.forked import end, run_ranks
from worker.attempt import Wrap, run_rank


def main(watched: Wrap = lambda report: report) -> None:
    """Run the ranks; the exit code is 1 when one of them died, or failed to say what became of it."""
    parser = argparse.ArgumentParser(prog="worker.ranks", description="Run all ranks of one export attempt.")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("ranks", type=int)
    given = parser.parse_args()
    run = partial(run_rank, given.workspace, watched=watched)
    end(run_ranks(run, given.ranks, meeting=(given.workspace / "meeting").absolute().as_uri()))


if __name__ == "__main__":
    main()
