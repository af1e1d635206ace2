"""Errors of starting the programs together."""

from exporter.errors import ExportError


class LaunchFailed(ExportError):
    """A program of the stack could not be started, or ended by itself too often."""

    code = "launch_failed"
    advice = "see the log that the message names; a port may be taken"
