"""The options, the client and the printing of commands that call a service."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from exporter.errors import InvalidSpec
from exporter.frozen import in_words
from service.client.options import non_empty
from service.client.settings import ClientSettings
from service.client.tables import console, table_of
from slipway.rest.answers import DeliveryList, JobList, ModelList, SubscriptionList, TriggerList
from slipway.rest.json_values import to_text
from slipway.rest.synchronous import Client

Run = Callable[[argparse.Namespace], int]
Model = TypeVar("Model", bound=BaseModel)
Page = JobList | ModelList | TriggerList | SubscriptionList | DeliveryList

INTERRUPTED = 130
_JOB = "01jd6v7x4mzq3w8c5kftn2rbha"  # in examples


def add_url_option(parser: argparse.ArgumentParser) -> None:
    """Add --url, which `client_of` reads."""
    default = ClientSettings().url
    parser.add_argument(
        "--url", default=default, help="URL of the service; default: SLIPWAY_URL or %(default)s"
    )


def add_common(parser: argparse.ArgumentParser, run: Run) -> None:
    """Add --url and --json, and set the function that runs the command and returns its exit code."""
    add_url_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.set_defaults(run=run)


def add_job_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Run,
    *,
    summary: str,
    description: str,
    example: str = "",
) -> argparse.ArgumentParser:
    """Add a command about one job, its first argument; `example` is what its example has after the job."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=f"example: slipway {name} {_JOB} {example}".rstrip(),
    )
    parser.add_argument("job_id", metavar="JOB", type=non_empty, help="id of the job")
    add_common(parser, run)
    return parser


def add_page_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --limit and --cursor of a list."""
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help=f"number of {what}, 1 to 100; default: %(default)s"
    )
    parser.add_argument(
        "--cursor", help="cursor of the next page, as printed at the end of the page before it"
    )


def client_of(arguments: argparse.Namespace) -> Client:
    """Return the client of the service at --url."""
    api_key = ClientSettings().api_key
    return Client(arguments.url, api_key.get_secret_value() if api_key else None)


def print_json(answer: object) -> None:
    """Print an answer as one line of JSON, at once."""
    sys.stdout.write(f"{to_text(answer)}\n")
    sys.stdout.flush()


def print_page(
    page: Page,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    as_json: bool,
    whole: str | None = None,
) -> int:
    """Print a page of a list as JSON, or as a table and how to list the next; return the exit code.

    The column `whole`, by default the first, is never folded. JSON needs no `rows`: none is taken then.
    """
    if as_json:
        print_json(page)
        return 0
    table = table_of(*columns, whole=whole or columns[0])
    table.box = None
    for row in rows:
        table.add_row(*row)
    console().print(table)
    if page.next_cursor is not None:
        sys.stdout.write(f"more: --cursor {page.next_cursor}\n")
    return 0


def labels_text(labels: Mapping[str, str]) -> str:
    """Write labels as `NAME=VALUE NAME=VALUE`; "–" for none."""
    return " ".join(f"{name}={value}" for name, value in labels.items()) or "–"


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
