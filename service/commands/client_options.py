"""The options, the client and the printing of commands that call a service."""

import argparse
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from exporter.errors import InvalidSpec
from exporter.frozen import in_words
from service.client.rest import SlipwayClient
from service.client.settings import ClientSettings

Run = Callable[[argparse.Namespace], int]
Model = TypeVar("Model", bound=BaseModel)

INTERRUPTED = 130


def add_common(parser: argparse.ArgumentParser, run: Run) -> None:
    """Add --url and --json, and set the function that runs the command and returns its exit code."""
    default = ClientSettings().url
    parser.add_argument(
        "--url", default=default, help="URL of the service; default: SLIPWAY_URL or %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.set_defaults(run=run)


def add_page_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --limit and --cursor of a list."""
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help=f"number of {what}, 1 to 100; default: %(default)s"
    )
    parser.add_argument(
        "--cursor", help="cursor of the next page, as printed at the end of the page before it"
    )


def client_of(arguments: argparse.Namespace) -> SlipwayClient:
    """Return the client of the service at --url."""
    api_key = ClientSettings().api_key
    return SlipwayClient(arguments.url, api_key.get_secret_value() if api_key else None)


def print_json(answer: BaseModel) -> None:
    """Print an answer as one line of JSON, at once."""
    sys.stdout.write(f"{answer.model_dump_json()}\n")
    sys.stdout.flush()


def print_next(cursor: str | None) -> None:
    """Say how the next page is listed, if there is one."""
    if cursor is not None:
        sys.stdout.write(f"more: --cursor {cursor}\n")


def utc(moment: datetime | None) -> str:
    """Write a time in UTC, to the second; "–" for none."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if moment else "–"


def read_file(path: Path, kind: type[Model]) -> Model:
    """Read a request from a JSON file; "-" is standard input.

    Raises:
        InvalidSpec: it cannot be read, or is no such request; the error names the field.
    """
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return kind.model_validate_json(text)
    except OSError as error:
        raise InvalidSpec(
            f"{path} cannot be read: {error.strerror}", hint="name a JSON file", where=str(path)
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise InvalidSpec(
            f"{path}: {where}: {in_words(first['msg'])}" if where else f"{path}: {in_words(first['msg'])}",
            hint="see the request's fields at /docs of the service",
            where=where or str(path),
        ) from error
