"""The error of a wrong command line."""

from exporter.errors import ExportError


class InvalidCommand(ExportError):
    """The command line names no command, or an option that the command does not take or needs."""

    code = "invalid_command"
    advice = "see slipway --help"
