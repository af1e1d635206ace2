"""The application of the API, which `python -m service` serves. It runs without torch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from anyio import CapacityLimiter
from fastapi import Depends, FastAPI

from exporter.version import __version__
from processes.startup import settings_or_exit
from service.access.guard import access_of, reading
from service.access.rate_limit import GuessLimit
from service.dashboard.route import error_page
from service.dependencies import Backend
from service.errors import handle_errors
from service.gate.head import HeadAsGet
from service.gate.request_gate import PublicBody, RequestGate
from service.redis_backend import running_backend
from service.routes import (
    artifacts,
    control,
    deliveries,
    exports,
    health,
    live,
    metrics,
    models,
    submit,
    subscriptions,
    triggers,
    webhooks,
)
from service.routes.pages.site import add_dashboard
from service.settings import ServiceSettings
from service.tracing import RequestSpans
from telemetry.logging import configure_logging
from telemetry.setup import make_tracing

_MAX_SIGN_IN_BYTES = 16 << 10  # a token and a path


def create_app(settings: ServiceSettings | None = None, backend: Backend | None = None) -> FastAPI:
    """Create the application; without a `backend` it uses the Redis of the settings."""
    settings = settings or settings_or_exit(ServiceSettings)
    tracing = make_tracing(settings.otlp_endpoint, "slipway-api")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        configure_logging(settings.log_format, settings.log_level)
        with closing(tracing):
            if backend is not None:
                app.state.backend = backend
                yield
                return
            async with running_backend(settings, tracing) as (app.state.backend, app.state.hooks):
                yield

    app = FastAPI(
        title="Slipway",
        version=__version__,
        description="Turns trained TorchRec recommenders into verified, ahead-of-time compiled packages.",
        lifespan=lifespan,
        # FastAPI's own pages run a third party's scripts next to the caller's cookie; for ours see
        # routes/pages/calls.py.
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(
        RequestGate,
        max_bytes=settings.max_request_bytes,
        max_seconds=settings.max_request_time,
        max_bodies_bytes=settings.max_bodies_bytes,
        public={
            "/sign-in": PublicBody(_MAX_SIGN_IN_BYTES),
            "/webhooks/training": PublicBody(settings.hooks.max_event_bytes, is_signed=True),
        },
        draw=error_page,
    )
    app.add_middleware(HeadAsGet)
    if settings.otlp_endpoint is not None:
        app.add_middleware(RequestSpans, tracing=tracing)
    app.state.access, app.state.settings = access_of(settings), settings
    app.state.probes = CapacityLimiter(health.PROBES_AT_ONCE)
    for each in (submit, exports, control, live, artifacts, models, health, metrics):
        app.include_router(each.router)
    app.state.hook_settings = settings.hooks
    app.state.wrong_signatures = GuessLimit(settings.guess_limit)  # apart from wrong keys
    if backend is None:  # webhooks need a Redis
        app.include_router(webhooks.router)  # no key needed: its callers sign their requests
        for each in (triggers, subscriptions, deliveries):
            app.include_router(each.router, dependencies=[Depends(reading)])
    add_dashboard(app, has_hooks=backend is None)
    handle_errors(app, error_page)
    return app
