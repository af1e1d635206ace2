"""The route behind the link to the documentation, which lies where the operator serves it."""

from fastapi import APIRouter, Response, status
from fastapi.responses import RedirectResponse

from service.dashboard.documentation import DocumentationPage
from service.dashboard.render import answer
from service.dashboard.route import PageRoute
from service.dependencies import Settings

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/documentation")
async def documentation(settings: Settings) -> Response:
    """Redirect to the documentation, or say where it is. No key is needed: it holds no secrets."""
    if settings.docs_url is None:
        return answer(DocumentationPage())
    return RedirectResponse(settings.docs_url, status.HTTP_307_TEMPORARY_REDIRECT)
