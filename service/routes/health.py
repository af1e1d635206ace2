"""Routes for health checks: whether the process is alive, and whether it can accept jobs."""

from fastapi import APIRouter

from exporter.version import __version__
from jobs.errors import StoreUnavailable
from service.dependencies import Workers
from service.errors import problem_responses
from service.schemas import Health, Readiness

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz() -> Health:
    """Return 200 as long as the process answers; Redis is not asked."""
    return Health(version=__version__)


@router.get("/readyz", responses=problem_responses(StoreUnavailable))
def readyz(workers: Workers) -> Readiness:
    """Return 200 if Redis is reachable, with the workers that are alive."""
    return Readiness.of(workers.alive())
