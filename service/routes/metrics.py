"""The route that Prometheus scrapes."""

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service.access.guard import reading
from service.dependencies import Everything
from service.errors import keyed_responses
from service.metrics import render

router = APIRouter(tags=["health"], dependencies=[Depends(reading)])


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        **keyed_responses(),
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
    },
)
def metrics(backend: Everything) -> Response:
    """Return jobs by state, queue age, workers, attempts, gate failures and stage times for Prometheus.

    They count the jobs of all callers, so a key that is bound to `uris` may not read them.
    """
    text = render(backend.totals, backend.roster, backend.tallies)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
