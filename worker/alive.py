"""A probe: `python -m worker.alive` ends with 0 while the worker beside it lives and hears of jobs."""

import sys
import time

from processes.privacy import keep_private
from processes.startup import settings_or_exit
from worker.machine.liveness import find_problem
from worker.settings import WorkerSettings


def main() -> None:
    keep_private()
    settings = settings_or_exit(WorkerSettings)
    if settings.alive_file is None:
        sys.exit("SLIPWAY_ALIVE_FILE names no file: the worker keeps none")
    if problem := find_problem(settings.alive_file, time.time(), settings.longest_hunger):
        sys.exit(problem)


if __name__ == "__main__":
    main()
