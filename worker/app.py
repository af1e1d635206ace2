"""The worker program: `celery -A worker.app worker`. It starts exports and never imports torch."""

import contextlib
import os
import secrets
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from celery import Celery
from celery.signals import setup_logging, worker_ready, worker_shutdown, worker_shutting_down

from jobs.celery_queue import CeleryQueue, make_celery
from jobs.redis_bundles import RedisBundles
from jobs.redis_logs import RedisLogs
from jobs.redis_pointers import RedisPointers
from jobs.redis_roster import RedisRoster
from jobs.redis_store import RedisJobStore, connect
from jobs.redis_tallies import RedisTallies
from jobs.retention import forget_old
from jobs.roster import Roster
from processes.privacy import keep_private
from processes.startup import settings_or_exit
from telemetry.logging import configure_logging
from telemetry.tracing import tracing_to
from worker.heartbeat import Heartbeat, Sweeper
from worker.launch import launcher_of
from worker.machine import machine_or_exit
from worker.settings import AllowanceSettings, SigningSettings, WorkerSettings
from worker.supervisor import Supervisor
from worker.tasks import Runner, register
from worker.workspace import own_worker_dir, remove_leftovers


def build(settings: WorkerSettings) -> Celery:
    """The Celery app with its task, and what lives as long as the worker."""
    machine = machine_or_exit(settings.targets)
    app, client = make_celery(settings.redis_url, machine.targets), connect(settings.redis_url)
    queue = CeleryQueue(app, client)
    supervisor = Supervisor(
        launcher_of(settings.attempt_command, settings_or_exit(AllowanceSettings)),
        worker_dir=own_worker_dir(settings.work_dir, os.getpid()),
        time_limit=settings.attempt_time_limit,
        logs=RedisLogs(client),
        bundles=RedisBundles(client),
        signing_key=settings_or_exit(SigningSettings).key,
    )
    runner = Runner(
        store=RedisJobStore(client),
        queue=queue,
        supervisor=supervisor,
        worker=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}",
        lease=settings.lease,
        pause=settings.retry_pause,
        tallies=RedisTallies(client),
        machine=machine,
        tracing=tracing_to(settings.otlp_endpoint, "slipway-worker"),
    )
    register(app, runner, queue)
    forget = partial(forget_old, runner.store, RedisPointers(client), settings.job_retention)
    _follow_life(settings, runner, RedisRoster(client), forget)
    return app


def _follow_life(
    settings: WorkerSettings, runner: Runner, roster: Roster, forget: Callable[[], object]
) -> None:
    """Connect Celery's signals: begin when the worker is ready, end its attempts when it is told to."""
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
        with contextlib.suppress(OSError):  # there is none if it never had a job
            own_worker_dir(settings.work_dir, os.getpid()).rmdir()
        runner.tracing.close()

    # Celery holds signal handlers weakly unless told otherwise.
    setup_logging.connect(log_our_way, weak=False)
    worker_ready.connect(begin, weak=False)
    worker_shutting_down.connect(end_attempts, weak=False)
    worker_shutdown.connect(end, weak=False)


keep_private()
app = build(settings_or_exit(WorkerSettings))
