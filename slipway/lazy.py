"""Parts of the library that need the exporter: imported at their use, or one line says what is missing."""

from importlib import import_module

_MISSING = (
    'the exporter is not installed; pip install "slipway[exporter]", then pip install --no-deps torchrec '
    "(docs/quickstart.md)"
)


def find_in_exporter(module: str, name: str) -> object:
    """Return what a module that needs the exporter calls `name`.

    Raises:
        ImportError: the programs are not installed.
        MissingExtra: the programs are, and packages that the exporter needs are not.
    """
    try:
        extras = import_module("processes.extras")  # by name: the library does not depend on the programs
    except ModuleNotFoundError as error:
        raise ImportError(_MISSING) from error
    try:
        extras.require_extras("exporter")
    except extras.MissingExtra as error:
        error.args = (f"{error.message}: {error.hint}",)  # in Python nobody else shows the hint
        raise
    return getattr(import_module(module), name)
