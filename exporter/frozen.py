"""The base of every value that crosses a process border."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value at a process border: immutable, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
