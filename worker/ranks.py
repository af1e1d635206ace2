"""All ranks of an attempt on this machine: `python -m worker.ranks <workspace> <ranks>`.

Of an attempt on several hosts, see `worker.hosts`: from `--first` on every so many, which meet the others at
`--meeting`. What a rank imports takes longer than most of what it does with code that is known: it
is imported here, once.
"""

import argparse
from functools import partial
from pathlib import Path

from exporter.distributed.forked import end, run_ranks
from exporter.distributed.isolation import die_with_parent
from worker.attempt import Wrap, run_rank


def main(watched: Wrap = lambda report: report) -> None:
    """Run the ranks; the exit code is 1 when one of them died, or failed to say what became of it."""
    die_with_parent()
    parser = argparse.ArgumentParser(prog="worker.ranks", description="Run all ranks of one export attempt.")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("ranks", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--meeting", metavar="URI")
    given = parser.parse_args()
    run = partial(run_rank, given.workspace, watched=watched)
    here = range(given.first, given.ranks, given.step)
    meeting = given.meeting or (given.workspace / "meeting").absolute().as_uri()
    end(run_ranks(run, given.ranks, meeting=meeting, here=here))


if __name__ == "__main__":
    main()
