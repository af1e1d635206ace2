"""What the programs' settings say about logging and tracing."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

OtlpEndpoint = Annotated[
    str | None,
    Field(
        pattern=r"^https?://[^\s/]+", description="As http://collector:4318: gets traces by OTLP over HTTP."
    ),
]


class LogFormat(StrEnum):
    """Who reads the log."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least important messages that are written."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
