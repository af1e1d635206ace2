"""Drain a worker before it stops: `python -m worker.drain` lets it take no more jobs and finish its own.

It is meant for a container's preStop hook. A worker that is stopped without it loses no job: its job returns
to the queue and starts again.
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

_QUIET_LOOKS = 2  # a message that was on its way shows up in the next beat
_ABSENT_LOOKS = 5  # after an outage the store learns of a worker at its next beat, and three may be missed
_DEAF_LOOKS = 60  # a worker that answers nothing and takes nothing for so long will take nothing more
_ENDING = timedelta(seconds=60)  # for ending an attempt past its time limit, and recording its result
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
    """Tell this host's worker to take nothing more from these queues; return whether it confirmed.

    Raises:
        StoreUnavailable: the broker could not be reached.
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
    """The results of looking at a worker several times."""

    stopped_listening: bool = False
    quiet: int = 0  # looks in a row that found it alive and idle
    absent: int = 0  # looks that found no worker

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
    """Stop the worker of this host from taking jobs; return True once it has none, False after `patience`.

    While the store is away it is unknown whether the worker is busy: it counts as busy, and is asked again to
    stop listening afterwards.
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
            {queue_name(route) for worker in here for route in worker.served}
        )
    seen.quiet = 0 if any(worker.jobs for worker in here) else seen.quiet + 1


def _find_workers(roster: Roster, host: str) -> tuple[WorkerNotice, ...]:
    return tuple(worker for worker in roster.alive() if worker.host == host)


if __name__ == "__main__":
    main()
