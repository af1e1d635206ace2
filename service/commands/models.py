"""`slipway models`, `promote`, `roll-back` and `workers`: releases, and who makes them."""

import argparse
import sys
from collections.abc import Iterable, Sequence

from jobs.errors import ModelNotFound
from service.client.options import labels_of, non_empty
from service.client.tables import console, table_of
from service.commands.client_options import (
    add_common,
    add_page_options,
    client_of,
    labels_text,
    print_json,
    print_page,
    utc,
)
from slipway.rest.answers import ModelList, Release
from slipway.rest.errors import SlipwayError
from slipway.rest.synchronous import Client


def add_commands(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `models`, `promote`, `roll-back` and `workers`."""
    models = subparsers.add_parser(
        "models",
        help="list models, or show one model's releases",
        description="List the models that have a release, with the latest and the promoted one of each.",
        epilog="example: slipway models feed",
    )
    models.add_argument("model", metavar="MODEL", nargs="?", type=non_empty, help="show this model only")
    models.add_argument(
        "--label",
        action="append",
        metavar="NAME=VALUE",
        help="with MODEL: the latest release with this label; may be repeated",
    )
    add_page_options(models, "models to list")
    add_common(models, run_models)

    promote = subparsers.add_parser(
        "promote",
        help="promote a release of a model",
        description="Promote the release of a job, or the model's latest. A release that its gate does not "
        "bless is refused with the figures.",
        epilog="example: slipway promote feed 01jd6v7x4mzq3w8c5kftn2rbha",
    )
    promote.add_argument("model", metavar="MODEL", type=non_empty)
    promote.add_argument(
        "job_id",
        metavar="JOB",
        nargs="?",
        type=non_empty,
        help="the job that published it; default: the latest",
    )
    promote.add_argument("--force", action="store_true", help="promote it even if its gate objects")
    add_common(promote, run_promote)

    roll_back = subparsers.add_parser(
        "roll-back",
        help="promote a model's previous release again",
        description="Promote the release again that was promoted before the current one.",
        epilog="example: slipway roll-back feed",
    )
    roll_back.add_argument("model", metavar="MODEL", type=non_empty)
    add_common(roll_back, run_roll_back)

    workers = subparsers.add_parser(
        "workers",
        help="list the workers that are alive",
        description="List the workers that are alive: what they run on, and the jobs that they work on.",
        epilog="example: slipway workers",
    )
    add_common(workers, run_workers)


def run_models(arguments: argparse.Namespace) -> int:
    """Print the releases of one model, or of a page of models."""
    client, columns = client_of(arguments), ("model", "latest", "finished", "labels", "blessed", "promoted")
    if arguments.model is not None:
        latest = client.latest(arguments.model, labels_of(arguments.label))
        if arguments.json:
            print_json(latest)
            return 0
        page = ModelList(models=(arguments.model,), next_cursor=None)
        rows: Iterable[Sequence[str]] = [_row(client, arguments.model, latest)]
        return print_page(page, columns, rows, as_json=False, whole="latest")
    page = client.models(limit=arguments.limit, cursor=arguments.cursor)
    found = ((name, _latest(client, name)) for name in page.models)
    rows = (_row(client, name, latest) for name, latest in found if latest is not None)
    return print_page(page, columns, rows, as_json=arguments.json, whole="latest")


def run_promote(arguments: argparse.Namespace) -> int:
    """Promote a release."""
    release = client_of(arguments).promote(arguments.model, arguments.job_id, force=arguments.force)
    return _print_release(release, arguments)


def run_roll_back(arguments: argparse.Namespace) -> int:
    """Promote the previous release again."""
    return _print_release(client_of(arguments).roll_back(arguments.model), arguments)


def run_workers(arguments: argparse.Namespace) -> int:
    """Print the workers that are alive; exit code 1 if there are none."""
    found = client_of(arguments).ready()
    if arguments.json:
        print_json(found)
        return 0 if found.workers else 1
    if found.alive is None:
        sys.stdout.write("only callers with an API key see the workers: set SLIPWAY_API_KEY\n")
        return 1
    table = table_of("worker", "targets", "machine", "torch", "since", "jobs", whole="worker")
    table.box = None
    for each in found.alive:
        jobs = ", ".join(each.jobs) or "idle"
        torch = each.versions.get("torch", "–")
        table.add_row(each.id, ", ".join(each.targets), each.architecture, torch, utc(each.started_at), jobs)
    console().print(table)
    return 0 if found.alive else 1


def _latest(client: Client, model: str) -> Release | None:
    try:
        return client.latest(model)
    except SlipwayError as error:
        if error.code != ModelNotFound.code:  # a release may have gone since the page was made
            raise
        return None


def _promoted(client: Client, model: str) -> Release | None:
    try:
        return client.promoted(model)
    except SlipwayError as error:
        if error.code != ModelNotFound.code:
            raise
        return None


def _row(client: Client, model: str, latest: Release) -> Sequence[str]:
    promoted, blessed = _promoted(client, model), {True: "yes", False: "no", None: "–"}[latest.blessed]
    then = promoted.job_id if promoted else "–"
    return model, latest.job_id, utc(latest.finished_at), labels_text(latest.labels), blessed, then


def _print_release(release: Release, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print_json(release)
    else:
        sys.stdout.write(f"{release.job_id}\n")
    return 0
