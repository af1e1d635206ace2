"""Pages as answers: a template, an entity tag, and headers that let no foreign script in."""

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

_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a template is given, as `page`; one subclass for each template."""

    template: ClassVar[str]
    here: ClassVar[str] = ""  # which entry of the menu it is
    every: ClassVar[int] = 2  # seconds between looks for a newer one; 0: it never changes

    reader: Caller | None = None  # who looks at it, where that is known

    @property
    def signed_in(self) -> str | None:
        """The name to show; where no keys are asked for, nobody has signed in."""
        return self.reader.name if self.reader is not None and self.reader is not LOCAL else None


def answer(page: Page, if_none_match: str | None = None, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """The page as HTML; 304 for a reader who has it as it is."""
    text = _templates().get_template(page.template).render(page=page)
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
