"""What the page of calls shows, out of the API's own description: nothing of it comes from elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import AliasChoices, BaseModel, Field, JsonValue

from service.dashboard.render import Page

_METHODS = ("get", "post", "put", "delete")
_SCHEMAS = "#/components/schemas/"


class Schema(BaseModel):
    """A type, as far as readers are told of it."""

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
        """The type in words: "list of string or null"."""
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
    """What is sent, or comes back."""

    description: str = ""
    content: Mapping[str, Content] = {}

    @property
    def schema_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.shape.text for each in self.content.values()))


class Parameter(BaseModel):
    """A part of the path, the query or the headers."""

    name: str
    place: str = Field(alias="in")
    required: bool = False
    description: str = ""
    shape: Schema = Field(default=Schema(), alias="schema")


class Operation(BaseModel):
    """One call."""

    tags: tuple[str, ...] = ("",)
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = Field(default=None, alias="requestBody")
    responses: Mapping[str, Body] = {}


class Components(BaseModel):
    """The types by name."""

    schemas: Mapping[str, Schema] = {}


class Document(BaseModel):
    """The API's description."""

    paths: Mapping[str, Mapping[str, Operation]]
    components: Components = Components()


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call, and how it is made."""

    method: str
    path: str
    operation: Operation


@dataclass(frozen=True, kw_only=True)
class CallsPage(Page):
    """All calls by what they are about, and the types of what they take and give."""

    template: ClassVar[str] = "calls.html"
    every: ClassVar[int] = 0

    document: Document

    @property
    def groups(self) -> Mapping[str, tuple[Call, ...]]:
        found: dict[str, tuple[Call, ...]] = {}
        for path, operations in self.document.paths.items():
            for method in _METHODS:
                if (operation := operations.get(method)) is not None:
                    call = Call(method=method.upper(), path=path, operation=operation)
                    found[operation.tags[0]] = (*found.get(operation.tags[0], ()), call)
        return found

    @property
    def types(self) -> Mapping[str, Schema]:
        return dict(sorted(self.document.components.schemas.items()))
