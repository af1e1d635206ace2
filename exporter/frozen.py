"""Base class of every value that crosses a process border."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value at a process border: immutable, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def in_words(message: str) -> str:
    """Return pydantic's message without the prefix that it puts before a validator's own sentence."""
    return message.removeprefix("Value error, ")
