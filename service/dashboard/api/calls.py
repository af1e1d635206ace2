"""The page of calls: all it shows is read from the API's own OpenAPI document."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import AliasChoices, BaseModel, Field, JsonValue

from service.dashboard.render import Page

_METHODS = ("get", "post", "put", "delete")
_SCHEMAS = "#/components/schemas/"


class Schema(BaseModel):
    """A type, with the parts of its JSON schema that the page shows."""

    ref: str = Field(default="", alias="$ref")
    either: tuple["Schema", ...] = Field(default=(), validation_alias=AliasChoices("anyOf", "oneOf", "allOf"))
    type: str = ""
    enum: tuple[JsonValue, ...] = ()
    const: JsonValue = None
    items: "Schema | None" = None
    values: "Schema | bool" = Field(default=True, alias="additionalProperties")
    properties: Mapping[str, "Schema"] = {}
    required: tuple[str, ...] = ()
    description: str = ""
    default: JsonValue = None
    minimum: float | None = None
    maximum: float | None = None
    pattern: str = ""

    @property
    def text(self) -> str:
        """The type in words, for example "list of string or null"."""
        if self.ref:
            return self.ref.removeprefix(_SCHEMAS)
        if self.either:
            return " or ".join(dict.fromkeys(each.text for each in self.either))
        if self.enum or self.const is not None:
            return ", ".join(str(value) for value in self.enum or (self.const,))
        if self.items is not None:
            return f"list of {self.items.text}"
        if isinstance(self.values, Schema):
            return f"{self.type} of {self.values.text}"
        return " ".join(filter(None, (self.type or "anything", self._limits)))

    @property
    def _limits(self) -> str:
        ends = [f"{end:g}" for end in (self.minimum, self.maximum) if end is not None]
        if len(ends) == 1:
            ends = [f"{'at least' if self.maximum is None else 'at most'} {ends[0]}"]
        return " to ".join(ends) or (f"like {self.pattern}" if self.pattern else "")


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


@dataclass(frozen=True, kw_only=True)
class CallsPage(Page):
    """All calls by subject, and the types of their parameters and bodies."""

    template: ClassVar[str] = "calls.html"
    every: ClassVar[int] = 0

    document: Document

    @property
    def groups(self) -> Mapping[str, tuple[DocumentedCall, ...]]:
        found: dict[str, tuple[DocumentedCall, ...]] = {}
        for path, operations in self.document.paths.items():
            for method in _METHODS:
                if (operation := operations.get(method)) is not None:
                    call = DocumentedCall(method=method.upper(), path=path, operation=operation)
                    found[operation.tags[0]] = (*found.get(operation.tags[0], ()), call)
        return found

    @property
    def types(self) -> Mapping[str, Schema]:
        return dict(sorted(self.document.components.schemas.items()))
