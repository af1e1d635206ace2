"""The `slipway` command: exports without the service, predictions, and calls to a running service."""

import argparse
import io
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

from cli import (
    check,
    completion,
    diff,
    export,
    inspect,
    plan,
    predict,
    prepare,
    prove,
    up,
    verify,
)
from cli.errors import InvalidCommand
from cli.settings import leave_the_gpu_to_forks
from exporter.aoti.probe.start import require_usable_torch
from exporter.outcome import Failure
from exporter.torch_releases import installed_release
from exporter.version import __version__
from processes.extras import as_missing_extra, require_extras
from processes.interrupts import interrupt_on_end_signals
from service.commands.parser import add_commands
from telemetry.choices import LogFormat, LogLevel
from telemetry.logging import configure_logging
from worker.machine.versions import all_versions

INVALID_COMMAND = 2
INTERRUPTED = 130
_READER_GONE = 1  # the exit code that rich has for a closed pipe
_TRACEBACK = "--traceback"
# What argparse says of a wrong word: "invalid choice: 'submt' (…", "unrecognized arguments: --chekpoint x".
_WRONG = re.compile(r"(?:invalid choice: '|unrecognized arguments: )(?P<word>[^'\s=]+)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an error is one line on stderr, with a stable code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    interrupt_on_end_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):  # "×" as an escape where the encoding lacks it, like stderr
        sys.stdout.reconfigure(errors="backslashreplace")
    configure_logging(LogFormat.CONSOLE, LogLevel.WARNING)
    leave_the_gpu_to_forks()
    try:
        parser = build_parser()
        if not words:
            parser.print_help()
            return 0
        parsed = parser.parse_args(words)
        if extra := getattr(parsed, "needs", None):
            require_extras(extra)
        code: int = parsed.run(parsed)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("slipway: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of standard output has closed it, as in `slipway inspect … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return _READER_GONE
    except Exception as error:  # noqa: BLE001 (every error becomes one line)
        if _TRACEBACK in words:
            traceback.print_exc()
        told = as_missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
        print(error_line(Failure.of(told or error), as_json="--json" in words), file=sys.stderr)
        return INVALID_COMMAND if isinstance(error, InvalidCommand) else 1


class _Parser(argparse.ArgumentParser):
    """Raises the errors that argparse would print, so that they are shown like all others."""

    def parse_known_args(  # type: ignore[override] # of the overloads, only this one is called
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown options here, where the command's own are known, not in the parser of all."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        raise InvalidCommand(message, hint=self._advice(message))

    def _advice(self, message: str) -> str:
        """Return the nearest command or option to the one that is wrong, or where to read about all."""
        wrong = _WRONG.search(message)
        known = [
            name for action in self._actions for name in (*action.option_strings, *(action.choices or ()))
        ]
        near = get_close_matches(wrong.group("word"), map(str, known), n=1) if wrong else []
        return f"did you mean {near[0]}?" if near else f"see {self.prog} --help"


class _Version(argparse.Action):
    """Shows the versions that packages depend on, and, in seconds, what an unsupported torch lacks."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"slipway {__version__}")
        print(", ".join(f"{name} {found}" for name, found in all_versions().items() if name != "slipway"))
        if installed_release() is not None:
            require_usable_torch()
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser: argparse.ArgumentParser = _Parser(
        prog="slipway",
        description="Turn trained TorchRec recommenders into verified, ahead-of-time compiled packages.",
        epilog="example: slipway export --help; exit codes: 0 done, 1 failed, 2 wrong command line, 3 partly "
        "published, 4 published and not blessed, 130 interrupted (docs/commands.md)",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the versions, and what the installed torch lacks"
    )
    parser.add_argument(_TRACEBACK, action="store_true", help="print an error's traceback too, to report it")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    plan.add_command(subparsers)
    check.add_command(subparsers)
    export.add_command(subparsers)
    predict.add_command(subparsers)
    prepare.add_command(subparsers)
    verify.add_command(subparsers)
    prove.add_command(subparsers)
    inspect.add_command(subparsers)
    diff.add_command(subparsers)
    add_commands(subparsers)
    up.add_command(subparsers)
    completion.add_command(subparsers, parser)
    return parser


def error_line(failure: Failure, *, as_json: bool) -> str:
    """Format a failure as `slipway: error [code]: message (where); hint`, or as JSON."""
    if as_json:
        return json.dumps({"error": failure.model_dump()})
    where = f" ({failure.where})" if failure.where and failure.where not in failure.message else ""
    hint = f"; {failure.hint}" if failure.hint else ""
    return f"slipway: error [{failure.code}]: {' '.join(failure.message.split())}{where}{hint}"


if __name__ == "__main__":
    sys.exit(main())
