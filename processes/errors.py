"""Why a program does not start."""

from exporter.errors import ExportError


class InvalidSettings(ExportError):
    """A setting, from the environment or an option, has a value that it cannot have."""

    code = "invalid_settings"
    advice = "correct the environment variable, or the option that stands for it"
