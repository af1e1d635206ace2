"""The stores of a running API: all of them in one Redis."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial

from exporter.storage.uris import FileRoots
from jobs.celery_queue import CeleryQueue, make_celery
from jobs.control.control import JobControl
from jobs.control.redis_answers import RedisAnswers
from jobs.control.redis_releases import RedisPointers
from jobs.diagnostics.redis_bundles import RedisBundles
from jobs.diagnostics.redis_logs import RedisLogs
from jobs.fleet.redis_roster import RedisRoster
from jobs.fleet.redis_tallies import RedisTallies
from jobs.fleet.roster import list_releases
from jobs.hooks.stores import make_redis_hooks
from jobs.short_memory import Kept, KeptClock
from jobs.stores.redis_store import RedisJobStore, connect
from service.dependencies import Backend
from service.hooks.backend import HookBackend, running_hooks
from service.planning import planner
from service.settings import ServiceSettings
from service.submit.redis_at_once import accepting_at_once
from service.tracing import TracedQueue
from telemetry.tracing import Tracing


@asynccontextmanager
async def running_backend(
    settings: ServiceSettings, tracing: Tracing
) -> AsyncIterator[tuple[Backend, HookBackend]]:
    """Connect to Redis, and send callbacks, as long as the block lasts."""
    client, celery = connect(settings.redis_url), make_celery(settings.redis_url)
    queue = TracedQueue(CeleryQueue(celery, client), tracing)
    store, roster = RedisJobStore(client), RedisRoster(client)
    clock, alive = KeptClock(store.now), Kept(roster.alive)
    jobs = JobControl(
        store,
        queue,
        planner(settings.families),
        refuse_missing=settings.check_sources,
        trace=tracing.current_traceparent,
        max_config_bytes=settings.max_config_bytes_per_owner,
        folders=FileRoots(roots=settings.allowed_file_roots),
        now=clock.now,
        torch_releases=partial(list_releases, settings.torch_releases, alive.get),
    )
    backend = Backend(
        jobs,
        roster,
        store,
        RedisAnswers(client, timedelta(seconds=settings.idempotency_retention)),
        RedisLogs(client),
        RedisTallies(client),
        RedisPointers(client),
        RedisBundles(client),
        recently_alive=alive.get,
    )
    stores = make_redis_hooks(client, settings.hooks.event_memory)
    async with accepting_at_once(settings, jobs, clock, alive) as at_once:
        with running_hooks(stores, jobs, settings.hooks) as hooks:
            yield replace(backend, at_once=at_once), hooks
    celery.close()
    client.close()
