"""The route of the page that describes every call of the API: /docs."""

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from service.dashboard.calls import CallsPage, Document
from service.dashboard.render import answer
from service.dashboard.route import PageRoute

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/docs")
def calls_page(request: Request, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Show all calls, without asking for a key: the API's description is no secret."""
    document = Document.model_validate(request.app.openapi())
    return answer(CallsPage(document=document), if_none_match)
