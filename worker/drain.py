"""Before a worker goes: `python -m worker.drain` lets it take no more jobs, and waits for the end of its own.

For a container's preStop hook. Whoever ends a worker without it loses nothing: the job goes back to the queue
and begins anew.
"""

import socket
import sys
import time
from collections.abc import Callable, Collection
from datetime import timedelta

from jobs.celery_queue import make_celery, queue_of
from jobs.errors import StoreUnavailable
from jobs.redis_roster import RedisRoster
from jobs.redis_store import connect
from jobs.roster import Roster, WorkerNotice
from processes.startup import settings_or_exit
from worker.settings import WorkerSettings

_QUIET_LOOKS = 2  # a message that was on its way shows in the next beat


def main() -> None:
    settings = settings_or_exit(WorkerSettings)
    host = socket.gethostname()
    app = make_celery(settings.redis_url)

    def stop_listening(queues: Collection[str]) -> None:
        for queue in sorted(queues):
            app.control.cancel_consumer(queue, destination=[f"celery@{host}"], reply=True, timeout=5)

    drained = drain(
        RedisRoster(connect(settings.redis_url)),
        host,
        stop_listening,
        beat=settings.heartbeat_interval,
        patience=settings.attempt_time_limit,
    )
    sys.exit(0 if drained else "the worker is still busy")


def drain(
    roster: Roster,
    host: str,
    stop_listening: Callable[[Collection[str]], None],
    *,
    beat: timedelta,
    patience: timedelta,
) -> bool:
    """Let the worker of this host hear of no more jobs; True as soon as it has none left."""
    deadline, told, quiet = time.monotonic() + patience.total_seconds(), False, 0
    while quiet < _QUIET_LOOKS:
        if time.monotonic() > deadline:
            return False
        try:
            here = _workers_of(roster, host)
            if here and not told:
                stop_listening({queue_of(target) for worker in here for target in worker.targets})
                told = True
            quiet = 0 if any(worker.jobs for worker in here) else quiet + 1
            if not here:
                return True
        except StoreUnavailable:
            quiet = 0  # it may be busy all the same
        time.sleep(beat.total_seconds())
    return True


def _workers_of(roster: Roster, host: str) -> tuple[WorkerNotice, ...]:
    return tuple(worker for worker in roster.alive() if worker.host == host)


if __name__ == "__main__":
    main()
