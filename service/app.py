"""The API program: `uvicorn --factory service.app:create_app`. It runs without torch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

from fastapi import Depends, FastAPI

from exporter.version import __version__
from jobs.celery_queue import CeleryQueue, make_celery
from jobs.control import JobControl
from jobs.hooks.stores import redis_hooks
from jobs.redis_answers import RedisAnswers
from jobs.redis_logs import RedisLogs
from jobs.redis_pointers import RedisPointers
from jobs.redis_roster import RedisRoster
from jobs.redis_store import RedisJobStore, connect
from jobs.redis_tallies import RedisTallies
from processes.startup import settings_or_exit
from service.access.guard import access_of, reading
from service.dependencies import Backend
from service.errors import handle_errors
from service.hooks.backend import running_hooks
from service.planning import plan
from service.request_limit import RequestLimit
from service.routes import (
    artifacts,
    control,
    deliveries,
    exports,
    health,
    live,
    metrics,
    models,
    subscriptions,
    triggers,
    webhooks,
)
from service.routes.dashboard import add_dashboard
from service.settings import ServiceSettings
from telemetry.logging import configure_logging


def create_app(settings: ServiceSettings | None = None, backend: Backend | None = None) -> FastAPI:
    """The application; without a `backend`, on the Redis of the settings."""
    settings = settings or settings_or_exit(ServiceSettings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        configure_logging(settings.log_format, settings.log_level)
        if backend is not None:
            app.state.backend = backend
            yield
            return
        client, celery = connect(settings.redis_url), make_celery(settings.redis_url)
        planner = partial(plan, families=settings.families)
        jobs = JobControl(RedisJobStore(client), CeleryQueue(celery, client), planner)
        app.state.backend = Backend(
            jobs,
            RedisRoster(client),
            RedisAnswers(client, timedelta(seconds=settings.idempotency_retention)),
            RedisLogs(client),
            RedisTallies(client),
            RedisPointers(client),
        )
        with running_hooks(
            redis_hooks(client, settings.hooks.event_memory), jobs, settings.hooks
        ) as app.state.hooks:
            yield
        celery.close()
        client.close()

    app = FastAPI(
        title="Slipway",
        version=__version__,
        description="Turns trained TorchRec recommenders into verified, ahead-of-time compiled packages.",
        lifespan=lifespan,
    )
    app.add_middleware(RequestLimit, max_bytes=settings.max_request_bytes)
    app.state.access, app.state.settings = access_of(settings), settings
    for each in (exports, control, live, artifacts, models, health, metrics):
        app.include_router(each.router)
    app.state.hook_settings = settings.hooks
    if backend is None:  # webhooks need a Redis
        app.include_router(webhooks.router)  # its callers sign what they send
        for each in (triggers, subscriptions, deliveries):
            app.include_router(each.router, dependencies=[Depends(reading)])
    add_dashboard(app)
    handle_errors(app)
    return app
