"""The error of a module that is handed over to be exported."""

from exporter.errors import FamilyError


class ModuleUnusable(FamilyError):
    """A module that `slipway.export` was given, or its example inputs, cannot be exported."""

    code = "module_unusable"
    advice = "see docs/own-module.md"
