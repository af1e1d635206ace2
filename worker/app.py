"""The worker program: `celery -A worker.app worker`. It starts exports and never imports torch."""

import contextlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from celery import Celery
from celery.signals import setup_logging, worker_ready, worker_shutdown, worker_shutting_down

from jobs.celery_queue import CeleryQueue, make_celery
from jobs.control.redis_releases import RedisPointers
from jobs.control.retention import forget_old_jobs
from jobs.fleet.redis_roster import RedisRoster
from jobs.stores.malformed import MalformedData
from jobs.stores.redis_store import connect
from processes.privacy import keep_private
from processes.startup import settings_or_exit
from telemetry.logging import configure_logging
from worker.attempt.workspace import own_worker_dir, remove_leftovers
from worker.celery_transport import use_transport
from worker.heartbeat import Heartbeat, Sweeper
from worker.machine.targets import machine_or_exit, usable_torch_or_exit
from worker.resident.client import ResidentProcess
from worker.settings import WorkerSettings
from worker.tasks import Runner, register_tasks
from worker.wiring import make_resident_process, make_runner


def build_app(settings: WorkerSettings) -> Celery:
    """Return the Celery app with its tasks, connected to everything that lives as long as the worker."""
    if settings.attempt_command is None:
        usable_torch_or_exit()
    machine = machine_or_exit(settings.targets, settings.torch)
    app, client = make_celery(settings.redis_url, machine.routes), connect(settings.redis_url)
    use_transport(app, MalformedData(client))
    queue = CeleryQueue(app, client)
    resident = make_resident_process(settings)
    runner = make_runner(settings, client, queue, machine, resident)
    register_tasks(app, runner, queue)
    forget = partial(forget_old_jobs, runner.store, RedisPointers(client), settings.job_retention)
    _connect_signals(settings, runner, RedisRoster(client), forget)
    if resident is not None:
        _connect_resident(resident)
    return app


def _connect_signals(
    settings: WorkerSettings, runner: Runner, roster: RedisRoster, forget: Callable[[], object]
) -> None:
    """Start heartbeat and sweeper when the worker is ready; end its attempts when it has to stop."""
    heartbeat = Heartbeat(roster, runner, settings.heartbeat_interval, datetime.now(UTC), settings.alive_file)
    sweeper = Sweeper(roster, runner, settings.sweep_interval, forget)

    def log_our_way(**_: object) -> None:
        configure_logging(settings.log_format, settings.log_level)

    def begin(**_: object) -> None:
        remove_leftovers(settings.work_dir)
        heartbeat.start()
        sweeper.start()

    def end_attempts(**_: object) -> None:
        runner.supervisor.stop()

    def end(**_: object) -> None:
        sweeper.stop()
        heartbeat.stop()
        with contextlib.suppress(OSError):  # no such folder if the worker never had a job
            own_worker_dir(settings.work_dir, os.getpid()).rmdir()
        runner.tracing.close()

    # Celery holds signal handlers weakly by default.
    setup_logging.connect(log_our_way, weak=False)
    worker_ready.connect(begin, weak=False)
    worker_shutting_down.connect(end_attempts, weak=False)
    worker_shutdown.connect(end, weak=False)


def _connect_resident(resident: ResidentProcess) -> None:
    """Let the resident process live as long as the worker."""
    worker_ready.connect(lambda **_: resident.start(), weak=False)
    worker_shutdown.connect(lambda **_: resident.stop(), weak=False)


keep_private()
app = build_app(settings_or_exit(WorkerSettings))
