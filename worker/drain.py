"""Before a worker goes: `python -m worker.drain` lets it take no more jobs, and waits for the end of its own.

For a container's preStop hook. Whoever ends a worker without it loses nothing: the job goes back to the queue
and begins anew.
"""

import socket
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta

from celery import Celery
from kombu.exceptions import OperationalError

from jobs.celery_queue import make_celery, queue_name
from jobs.errors import StoreUnavailable
from jobs.fleet.redis_roster import RedisRoster
from jobs.fleet.roster import Roster, WorkerNotice
from jobs.stores.redis_store import connect, translate_redis_errors
from processes.privacy import keep_private
from processes.startup import settings_or_exit
from worker.settings import WorkerSettings

_QUIET_LOOKS = 2  # a message that was on its way shows in the next beat
_ABSENT_LOOKS = 5  # a store that was away knows a worker from its next beat on, and it may miss three
_DEAF_LOOKS = 60  # one that does not answer, and takes nothing for so long, takes nothing more
_ENDING = timedelta(seconds=60)  # past its time an attempt is ended, and what it came to is written down
_ANSWER_S = 5.0

StopListening = Callable[[Collection[str]], bool]


def main() -> None:
    keep_private()
    settings = settings_or_exit(WorkerSettings)
    host = socket.gethostname()
    app = make_celery(settings.redis_url)
    drained = drain(
        RedisRoster(connect(settings.redis_url)),
        host,
        lambda queues: stop_listening(app, host, queues),
        beat=settings.heartbeat_interval,
        patience=settings.attempt_time_limit + _ENDING,
    )
    sys.exit(0 if drained else "the worker is still busy")


def stop_listening(app: Celery, host: str, queues: Collection[str]) -> bool:
    """Whether the worker of this host has answered that it takes nothing more from these queues.

    Raises:
        StoreUnavailable: it could not be asked.
    """
    worker = [f"celery@{host}"]
    try:
        # A connection of its own: a pooled one may have died with the store.
        with translate_redis_errors(), app.connection_for_write() as connection:
            answers = [
                app.control.cancel_consumer(
                    queue, destination=worker, reply=True, timeout=_ANSWER_S, connection=connection
                )
                for queue in sorted(queues)
            ]
    except (OperationalError, OSError) as error:
        raise StoreUnavailable(error) from error
    return all(answers)


@dataclass
class _Observation:
    """What the looks at a worker have come to."""

    stopped_listening: bool = False
    quiet: int = 0  # looks in a row that found it there and idle
    absent: int = 0  # that found no worker

    @property
    def drained(self) -> bool:
        looks = _QUIET_LOOKS if self.stopped_listening else _DEAF_LOOKS
        return self.quiet >= looks or self.absent >= _ABSENT_LOOKS


def drain(
    roster: Roster,
    host: str,
    stop_listening: StopListening,
    *,
    beat: timedelta,
    patience: timedelta,
) -> bool:
    """Let the worker of this host hear of no more jobs; True as soon as it has none left.

    While the store is away nobody knows whether the worker is busy: it counts as busy, and is told anew
    afterwards.
    """
    deadline, seen = time.monotonic() + patience.total_seconds(), _Observation()
    while not seen.drained:
        if time.monotonic() > deadline:
            return False
        try:
            _observe_worker(_find_workers(roster, host), stop_listening, seen)
        except StoreUnavailable:
            seen = _Observation()
        if not seen.drained:
            time.sleep(beat.total_seconds())
    return True


def _observe_worker(
    here: Collection[WorkerNotice], stop_listening: StopListening, seen: _Observation
) -> None:
    if not here:
        seen.absent, seen.quiet = seen.absent + 1, 0
        return
    seen.absent = 0
    if not seen.stopped_listening:
        seen.stopped_listening = stop_listening(
            {queue_name(target) for worker in here for target in worker.targets}
        )
    seen.quiet = 0 if any(worker.jobs for worker in here) else seen.quiet + 1


def _find_workers(roster: Roster, host: str) -> tuple[WorkerNotice, ...]:
    return tuple(worker for worker in roster.alive() if worker.host == host)


if __name__ == "__main__":
    main()
