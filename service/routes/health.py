"""Is the process alive, and can it do its work?"""

from fastapi import APIRouter

from exporter.version import __version__
from jobs.errors import StoreUnavailable
from service.dependencies import Workers
from service.errors import problem_responses
from service.schemas import Health, Readiness

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz() -> Health:
    """The process answers; Redis is not asked."""
    return Health(version=__version__)


@router.get("/readyz", responses=problem_responses(StoreUnavailable))
def readyz(workers: Workers) -> Readiness:
    """Redis is reachable; this many workers are alive."""
    return Readiness.of(workers.alive())
