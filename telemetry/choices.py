"""Types of the settings for logging and tracing, which all programs have."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

OtlpEndpoint = Annotated[
    str | None,
    Field(
        pattern=r"^https?://[^\s/]+",
        description="Collector that receives traces by OTLP over HTTP, such as http://collector:4318. "
        "Default: no traces.",
    ),
]


class LogFormat(StrEnum):
    """The form of log lines: JSON for machines, console text for people."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The lowest level of messages that are logged."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
