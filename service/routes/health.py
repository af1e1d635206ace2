"""Routes for health checks: whether the process is alive, and whether it can accept jobs.

Neither uses the thread pool of the other routes, which may be busy when a probe comes.
"""

from anyio import CapacityLimiter, fail_after, to_thread
from fastapi import APIRouter, Request

from exporter.errors import ExportError
from jobs.errors import StoreUnavailable
from service.access.callers import Caller, Scope
from service.access.guard import caller_of
from service.dependencies import fleet_of
from service.errors import problem_responses
from service.schemas import Health, Readiness

PROBES_AT_ONCE = 2
_PROBE_S = 3.0  # a Redis that hangs is answered for after this time, before a probe gives up

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
async def readyz(request: Request) -> Readiness:
    """Return 200 if Redis is reachable; to callers with a key also the workers that are alive."""
    limiter: CapacityLimiter = request.app.state.probes
    reader = await _reader(request)
    try:
        with fail_after(_PROBE_S):
            alive = await to_thread.run_sync(
                fleet_of(request, reader).alive, limiter=limiter, abandon_on_cancel=True
            )
    except TimeoutError as error:
        raise StoreUnavailable(error) from error
    return Readiness.of(alive) if reader is not None else Readiness()


async def _reader(request: Request) -> Caller | None:
    """Return a caller who may see workers; a wrong key is no reason to call the service not ready."""
    try:
        caller = await caller_of(request)
    except ExportError:
        return None
    return caller if caller.may(Scope.READ) else None
