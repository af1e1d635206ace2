"""The page that says where the documentation is, on a service whose operator serves none."""

from dataclasses import dataclass
from typing import ClassVar

from service.dashboard.render import Page


@dataclass(frozen=True, kw_only=True)
class DocumentationPage(Page):
    """The place of the documentation, and what can be read without it."""

    template: ClassVar[str] = "documentation.html"
    here: ClassVar[str] = "documentation"
    every: ClassVar[int] = 0
