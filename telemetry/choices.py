"""What the programs' settings say about logging."""

from enum import StrEnum


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
