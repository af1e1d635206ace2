"""Rendering pages: from a template, with an entity tag and headers that forbid foreign scripts."""

import hashlib
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar

from fastapi import Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from service.access.callers import LOCAL, Caller
from service.dashboard.formats import FILTERS

STATIC = Path(__file__).parent / "static"
MENU = (  # of every page: name in `Page.here`, address, words
    ("jobs", "/", "Exports"),
    ("models", "/pages/models", "Models"),
    ("hooks", "/pages/triggers", "Webhooks"),
    ("workers", "/workers", "Workers and queue"),
    ("calls", "/docs", "API"),
    ("documentation", "/documentation", "Documentation"),
)

_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


@dataclass(frozen=True, kw_only=True)
class Page:
    """The data of a template, which reads it as `page`; there is one subclass for each template."""

    template: ClassVar[str]
    menu: ClassVar[tuple[tuple[str, str, str], ...]] = MENU
    here: ClassVar[str] = ""  # its entry in the menu
    every: ClassVar[int] = 2  # seconds between refreshes; 0: it never changes

    reader: Caller | None = None  # the caller who reads the page, if known

    @property
    def signed_in(self) -> str | None:
        """The reader's name; None if the service has no keys, and needs no sign-in."""
        return self.reader.name if self.reader is not None and self.reader is not LOCAL else None


def answer(page: Page, if_none_match: str | None = None, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Answer with the page as HTML, or 304 if the reader has the same page already."""
    return answer_html(render(page), if_none_match, status)


def render(page: Page) -> str:
    """Return the page as HTML."""
    return _templates().get_template(page.template).render(page=page)


def answer_html(text: str, if_none_match: str | None = None, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Answer with a page that is rendered, or 304 if the reader has the same page already."""
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:24]}"'
    headers = {**_SECURITY, "ETag": tag, "Cache-Control": "private, no-cache"}
    if status is HTTPStatus.OK and if_none_match is not None and tag in if_none_match:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(text, status_code=status, headers=headers, media_type="text/html")


@cache
def _templates() -> Environment:
    loader = PackageLoader("service.dashboard")
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters.update(FILTERS)
    return templates
