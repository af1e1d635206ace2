"""The types of the API, as its OpenAPI document describes them, in words."""

from collections.abc import Mapping

from pydantic import AliasChoices, BaseModel, Field, JsonValue

SCHEMAS = "#/components/schemas/"


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
            return self.ref.removeprefix(SCHEMAS)
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
