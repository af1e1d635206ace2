"""The `slipway` command, which another distribution holds: without it, one line says how to install it."""

import sys
from importlib import import_module
from importlib.metadata import version

_MISSING = (
    'slipway: error [missing_extra]: the command line is not installed; pip install "slipway[cli]", '
    'or "slipway[exporter]" to export here'
)


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        start = import_module("cli.start")  # by name: the library does not depend on the programs
    except ModuleNotFoundError:
        if sys.argv[1:] == ["--version"]:
            sys.stdout.write(f"slipway {version('slipway')}\n")
            return 0
        sys.stderr.write(f"{_MISSING}\n")
        return 1
    code: int = start.main()
    return code
