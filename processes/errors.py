"""Errors of starting a program.

ExportError
├── InvalidSettings  a setting, from the environment or an option, has an invalid value
└── MissingExtra     packages that a command needs are not installed
"""

from exporter.errors import ExportError


class InvalidSettings(ExportError):
    """A setting, from the environment or an option, has an invalid value."""

    code = "invalid_settings"
    advice = "correct the environment variable, or the command-line option of the same setting"


class MissingExtra(ExportError):
    """Packages that a command needs are not installed."""

    code = "missing_extra"
    advice = "install the extra of slipway that the message names"
