"""The `slipway` command: exports without the service, predictions, and calls to a running service."""

import argparse
import json
import sys
from collections.abc import Sequence

from cli import export, inspect, plan, predict
from exporter.errors import ExportError
from exporter.outcome import Failure
from exporter.version import __version__
from service.cli_commands import add_commands
from telemetry.choices import LogFormat, LogLevel
from telemetry.logging import configure_logging

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error is one line on stderr, with a stable code."""
    parser = build_parser()
    given = parser.parse_args(arguments)
    configure_logging(LogFormat.CONSOLE, LogLevel.WARNING)
    try:
        code: int = given.run(given)
    except ExportError as error:
        print(error_line(Failure.of(error), as_json=getattr(given, "json", False)), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("slipway: interrupted", file=sys.stderr)
        return INTERRUPTED
    return code


def build_parser() -> argparse.ArgumentParser:
    """The command line as a whole."""
    parser = argparse.ArgumentParser(
        prog="slipway",
        description="Turn trained TorchRec recommenders into verified, ahead-of-time compiled packages.",
        epilog="example: slipway export --help",
    )
    parser.add_argument("--version", action="version", version=f"slipway {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    plan.add_command(subparsers)
    export.add_command(subparsers)
    predict.add_command(subparsers)
    inspect.add_command(subparsers)
    add_commands(subparsers)
    return parser


def error_line(failure: Failure, *, as_json: bool) -> str:
    """`slipway: error [code]: message (where); hint`, or the same as JSON."""
    if as_json:
        return json.dumps({"error": failure.model_dump()})
    where = f" ({failure.where})" if failure.where and failure.where not in failure.message else ""
    hint = f"; {failure.hint}" if failure.hint else ""
    return f"slipway: error [{failure.code}]: {' '.join(failure.message.split())}{where}{hint}"


if __name__ == "__main__":
    sys.exit(main())
