"""The worker's liveness probe: `python -m worker.alive` exits with 0 while the worker beside it is alive.

It fails when the worker's latest beat is too old, or when the worker has been idle for long although messages
wait for it.
"""

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
        sys.exit("SLIPWAY_ALIVE_FILE is not set: the worker writes no liveness file")
    if problem := find_problem(settings.alive_file, time.time(), settings.longest_hunger):
        sys.exit(problem)


if __name__ == "__main__":
    main()
