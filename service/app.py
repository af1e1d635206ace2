"""The API program: `uvicorn --factory service.app:create_app`. It runs without torch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from exporter.version import __version__
from jobs.celery_queue import CeleryQueue, make_celery
from jobs.control import JobControl
from jobs.redis_roster import RedisRoster
from jobs.redis_store import RedisJobStore, connect
from service.dependencies import Backend
from service.errors import handle_errors
from service.planning import plan
from service.request_limit import RequestLimit
from service.routes import exports, health
from service.routes.dashboard import add_dashboard
from service.settings import ServiceSettings
from telemetry.logging import configure_logging


def create_app(settings: ServiceSettings | None = None, backend: Backend | None = None) -> FastAPI:
    """The application; without a `backend`, on the Redis of the settings."""
    settings = settings or ServiceSettings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        configure_logging(settings.log_format, settings.log_level)
        if backend is not None:
            app.state.backend = backend
            yield
            return
        client, celery = connect(settings.redis_url), make_celery(settings.redis_url)
        jobs = JobControl(RedisJobStore(client), CeleryQueue(celery, client), plan)
        app.state.backend = Backend(jobs, RedisRoster(client))
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
    app.include_router(exports.router)
    app.include_router(health.router)
    add_dashboard(app)
    handle_errors(app)
    return app
