"""Errors of starting a program."""

from exporter.errors import ExportError


class InvalidSettings(ExportError):
    """A setting, from the environment or an option, has an invalid value."""

    code = "invalid_settings"
    advice = "correct the environment variable, or the command-line option of the same setting"
