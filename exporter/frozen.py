"""The base of every value that crosses a process border."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value at a process border: immutable, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def in_words(message: str) -> str:
    """What pydantic says of a value, without the mark that it puts before what a model says itself."""
    return message.removeprefix("Value error, ")
