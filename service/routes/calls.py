"""The page that describes every call, at /docs."""

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from service.dashboard.calls import CallsPage, Document
from service.dashboard.render import answer
from service.dashboard.route import PageRoute

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/docs")
def calls_page(request: Request, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """All calls, for whoever asks: what they are is no secret."""
    document = Document.model_validate(request.app.openapi())
    return answer(CallsPage(document=document), if_none_match)
