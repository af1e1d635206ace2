"""The page of calls: all it shows is read from the API's own OpenAPI document."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, Field

from service.dashboard.api.curl import body_text, curl_of
from service.dashboard.api.schemas import Schema
from service.dashboard.render import Page

_METHODS = ("get", "post", "put", "delete")
_JSON = "application/json"


class Content(BaseModel):
    """A body of one media type."""

    shape: Schema = Field(default=Schema(), alias="schema")


class Body(BaseModel):
    """The body of a request or of an answer, by media type."""

    description: str = ""
    content: Mapping[str, Content] = {}

    @property
    def schema_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.shape.text for each in self.content.values()))


class Parameter(BaseModel):
    """A parameter in the path, the query or the headers."""

    name: str
    place: str = Field(alias="in")
    required: bool = False
    description: str = ""
    shape: Schema = Field(default=Schema(), alias="schema")


class Operation(BaseModel):
    """One call as OpenAPI describes it."""

    tags: tuple[str, ...] = ("",)
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = Field(default=None, alias="requestBody")
    responses: Mapping[str, Body] = {}


class Components(BaseModel):
    """The types of the API by name."""

    schemas: Mapping[str, Schema] = {}


class Document(BaseModel):
    """The API's OpenAPI document."""

    paths: Mapping[str, Mapping[str, Operation]]
    components: Components = Components()


@dataclass(frozen=True, kw_only=True)
class DocumentedCall:
    """A call of the API with its method and path."""

    method: str
    path: str
    operation: Operation
    example: str = ""  # of its body, as JSON

    @property
    def curl(self) -> str:
        return curl_of(self.method, self.path, self.example)

    @property
    def fields(self) -> tuple[Parameter, ...]:
        """The parameters in the path and the query."""
        return tuple(each for each in self.operation.parameters if each.place in ("path", "query"))

    @property
    def can_be_tried(self) -> bool:
        """False for a stream, which has no end, and for signed events."""
        content = self.operation.body.content if self.operation.body else {}
        ends = not any("text/event-stream" in each.content for each in self.operation.responses.values())
        return ends and "application/cloudevents+json" not in content


@dataclass(frozen=True, kw_only=True)
class CallsPage(Page):
    """All calls by subject, and the types of their parameters and bodies."""

    template: ClassVar[str] = "calls.html"
    here: ClassVar[str] = "calls"
    every: ClassVar[int] = 0

    document: Document

    @property
    def groups(self) -> Mapping[str, tuple[DocumentedCall, ...]]:
        found: dict[str, tuple[DocumentedCall, ...]] = {}
        for path, operations in self.document.paths.items():
            for method in _METHODS:
                if (operation := operations.get(method)) is not None:
                    call = self._document(method.upper(), path, operation)
                    found[operation.tags[0]] = (*found.get(operation.tags[0], ()), call)
        return found

    def _document(self, method: str, path: str, operation: Operation) -> DocumentedCall:
        content = operation.body.content if operation.body else {}
        schemas = self.document.components.schemas
        example = body_text(content[_JSON].shape, schemas) if _JSON in content else ""
        return DocumentedCall(method=method, path=path, operation=operation, example=example)

    @property
    def types(self) -> Mapping[str, Schema]:
        return dict(sorted(self.document.components.schemas.items()))
