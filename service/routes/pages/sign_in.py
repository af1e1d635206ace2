"""Routes to sign in to the dashboard with an API key, which the browser then keeps as a cookie."""

from fastapi import APIRouter, Request, Response, status
from fastapi.responses import RedirectResponse

from service.access.guard import KEY_COOKIE, peer_of
from service.dashboard.pages import SignInPage
from service.dashboard.render import answer
from service.dashboard.route import Form, PageRoute
from service.dependencies import Settings
from service.errors import TooManyGuesses, Unauthenticated, status_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.post("/sign-in")
async def sign_in(request: Request, settings: Settings, form: Form) -> Response:
    """Set a valid key as the browser's cookie, and redirect to the page that was asked for."""
    key, wanted = form.get("key", "").strip(), _own_path(form.get("wanted", "/"))
    server = request.scope.get("server")
    try:
        await request.app.state.access.caller(key, server[0] if server else None, peer=peer_of(request))
    except (Unauthenticated, TooManyGuesses) as error:
        page = SignInPage(wanted=wanted, refused=error.message)
        return answer(page, status=status_of(type(error)))
    redirect = RedirectResponse(wanted, status.HTTP_303_SEE_OTHER)
    secure = settings.secure_cookie or request.url.scheme == "https"
    redirect.set_cookie(KEY_COOKIE, key, httponly=True, samesite="lax", secure=secure, path="/")
    return redirect


@router.post("/sign-out")
def sign_out() -> Response:
    """Delete the browser's cookie with the key."""
    redirect = RedirectResponse("/", status.HTTP_303_SEE_OTHER)
    redirect.delete_cookie(KEY_COOKIE, path="/")
    return redirect


def _own_path(wanted: str) -> str:
    """Return `wanted` if it is a path of this service, else the path of the first page."""
    plain = wanted.startswith("/") and not wanted.startswith("//") and "\\" not in wanted
    return wanted if plain and wanted.isprintable() else "/"
