"""The route of the page that describes every call of the API: /docs."""

from functools import lru_cache
from typing import Annotated

from fastapi import APIRouter, FastAPI, Header, Request, Response

from service.dashboard.api.calls import CallsPage, Document
from service.dashboard.render import answer_html, render
from service.dashboard.route import PageRoute

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/docs")
async def calls_page(request: Request, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Show all calls, without asking for a key: the API's description is no secret."""
    return answer_html(_html_of(request.app), if_none_match)


@lru_cache(maxsize=1)
def _html_of(app: FastAPI) -> str:
    """Render the page once, which takes long: strangers may ask for it as often as they like."""
    return render(CallsPage(document=Document.model_validate(app.openapi())))
