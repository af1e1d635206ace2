"""Build a worker's launcher, supervisor and stores from its settings."""

import os
import secrets
import socket
from functools import partial

from jobs.control.baselines import find_release_context
from jobs.control.redis_releases import RedisPointers
from jobs.diagnostics.redis_bundles import RedisBundles
from jobs.diagnostics.redis_logs import RedisLogs
from jobs.fleet.redis_tallies import RedisTallies
from jobs.lease.lease_expiry import LeaseMonitor
from jobs.queue import WorkerQueue
from jobs.stores.redis_store import RedisClient, RedisJobStore
from processes.startup import settings_or_exit
from telemetry.setup import make_tracing
from worker.attempt.workspace import own_worker_dir
from worker.hosts.call_workers import HostCaller
from worker.launch import make_launcher, make_resident
from worker.machine.targets import Machine
from worker.resident.client import ResidentProcess
from worker.settings import AttemptEnvironmentSettings, SigningSettings, WorkerSettings
from worker.supervisor import Supervisor
from worker.tasks import Runner


def make_resident_process(settings: WorkerSettings) -> ResidentProcess | None:
    """Return the worker's resident process, not started; None if its attempts are not forks of one."""
    if settings.attempt_command is not None or not settings.resident_attempts:
        return None
    return make_resident(
        settings.resident_attempts, settings_or_exit(AttemptEnvironmentSettings), settings.lease
    )


def make_runner(
    settings: WorkerSettings,
    client: RedisClient,
    queue: WorkerQueue,
    machine: Machine,
    resident: ResidentProcess | None,
) -> Runner:
    """Return the runner that the settings describe; its attempts are forks of `resident` if there is one."""
    supervisor = Supervisor(
        make_launcher(settings.attempt_command, settings_or_exit(AttemptEnvironmentSettings), resident),
        worker_dir=own_worker_dir(settings.work_dir, os.getpid()),
        time_limit=settings.attempt_time_limit,
        logs=RedisLogs(client),
        bundles=RedisBundles(client),
        signing_key=settings_or_exit(SigningSettings).key,
        find_context=partial(find_release_context, pointers=RedisPointers(client)),
    )
    return Runner(
        store=RedisJobStore(client),
        queue=queue,
        lease_monitor=LeaseMonitor(settings.lease),
        supervisor=supervisor,
        worker=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}",
        lease=settings.lease,
        pause=settings.retry_pause,
        tallies=RedisTallies(client),
        machine=machine,
        host_caller=HostCaller.from_settings(settings),
        tracing=make_tracing(settings.otlp_endpoint, "slipway-worker"),
    )
