"""All pages of the dashboard, with their styles and scripts, as one part of the application."""

from fastapi import FastAPI, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from service.dashboard.render import STATIC
from service.routes import dashboard
from service.routes.pages import calls, documentation, hooks, jobs, models, sign_in


class Fresh(StaticFiles):
    """Static files that a browser checks for changes each time, so that pages and scripts fit together."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file, or 304 if the browser has it already."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def add_dashboard(app: FastAPI, *, has_hooks: bool) -> None:
    """Serve the pages; those of webhooks only where there are any."""
    for each in (jobs, dashboard, models, calls, documentation, sign_in):
        app.include_router(each.router)
    if has_hooks:
        app.include_router(hooks.router)
    app.mount("/static", Fresh(directory=STATIC), name="static")
