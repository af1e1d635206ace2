"""Routes for health checks: whether the process is alive, and whether it can accept jobs.

Neither uses the thread pool of the other routes, which may be busy when a probe comes.
"""

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request

from exporter.errors import ExportError
from jobs.errors import StoreUnavailable
from service.access.callers import Scope
from service.access.guard import caller_of
from service.dependencies import Workers
from service.errors import problem_responses
from service.schemas import Health, Readiness

PROBES_AT_ONCE = 2

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Health:
    """Return 200 as long as the process answers; Redis is not asked."""
    return Health()


@router.get(
    "/readyz",
    responses=problem_responses(StoreUnavailable),
    openapi_extra={"security": [{}, {"HTTPBearer": []}]},
)
async def readyz(request: Request, workers: Workers) -> Readiness:
    """Return 200 if Redis is reachable; to callers with a key also the workers that are alive."""
    limiter: CapacityLimiter = request.app.state.probes
    alive = await to_thread.run_sync(workers.alive, limiter=limiter)
    return Readiness.of(alive) if await _may_read(request) else Readiness()


async def _may_read(request: Request) -> bool:
    """Return whether the caller may see workers; a wrong key is no reason to call the service not ready."""
    try:
        return (await caller_of(request)).may(Scope.READ)
    except ExportError:
        return False
