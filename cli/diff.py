"""`slipway diff`: compare two published artifacts, as text, JSON or HTML, before one is promoted."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from cli.options.artifact import add_towers_option, key_of, towers_of
from cli.settings import ExportSettings
from exporter.artifact.read import root_of
from exporter.errors import InvalidSpec
from exporter.redaction import escape_deceptive, shorten
from exporter.reports.comparison import Changes, Comparison, TableDiff
from exporter.reports.comparison_text import share, summarise
from exporter.reports.release_report import ReleasedArtifacts
from exporter.spec import TowerName
from exporter.storage.local import LocalStore
from jobs.ids import is_job_id
from processes.startup import settings_or_exit
from service.client.options import non_empty
from service.client.tables import console, table_of
from service.commands.client_options import add_url_option, client_of
from slipway.rest.synchronous import Client

_DIFFERENT = 1
_PROMOTED, _LATEST = "promoted:", "latest:"
_SHOWN = 6  # settings, or tables, on the terminal; JSON and HTML have more
_CELL = 60  # characters of a setting
_EXAMPLES = (
    "examples: slipway diff exports/01J... exports/01K... --html diff.html; "
    "slipway diff promoted:ranking 01k3v7x4mzq3w8c5kftn2rbha1 --json -"
)


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `diff`."""
    parser = subparsers.add_parser(
        "diff",
        help="compare two published artifacts",
        description="Compare two published artifacts: configs, dims, code, every row of every table, all "
        "other weights, outputs on the same rows, latency in turn in one process, and sizes.",
        epilog=_EXAMPLES,
    )
    sides = "an artifact's folder or manifest, a job's id, promoted:MODEL or latest:MODEL"
    parser.add_argument("old", metavar="A", type=non_empty, help=f"the older side: {sides}")
    parser.add_argument("new", metavar="B", type=non_empty, help="the newer side, in the same forms")
    add_towers_option(parser, "compare")
    _add_runs(parser)
    parser.add_argument("--json", metavar="FILE", help="write the whole comparison as JSON; - prints it")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write it as one HTML file, with plots")
    parser.add_argument(
        "--exit-code", action="store_true", help="end with 1 if anything differs that is served"
    )
    parser.add_argument(
        "--verify", metavar="KEY", type=Path, help="public key that must have signed both artifacts"
    )
    add_url_option(parser)
    parser.set_defaults(run=run, needs="exporter")


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows",
        metavar="URI",
        type=non_empty,
        help="parquet rows to run both on; default: the sample rows that B's export read",
    )
    parser.add_argument(
        "--items",
        metavar="URI",
        type=non_empty,
        help="parquet rows of items for item towers; default: the items that B's export read",
    )
    parser.add_argument(
        "--max-rows",
        metavar="N",
        type=_count,
        default=2000,
        help="run both on as many rows at most; default: %(default)s",
    )
    parser.add_argument(
        "--latency-seconds",
        metavar="S",
        type=_seconds,
        default=2.0,
        help="time calls for as long per batch size; 0 does not time them; default: %(default)s",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare two artifacts and show what differs."""
    client = client_of(arguments)
    old, new = (_resolve(side, client) for side in (arguments.old, arguments.new))
    for path in _files(arguments):
        LocalStore(path.absolute().parent).require_writable()  # before minutes of work
    comparison = _compare(old, new, arguments)
    text = comparison.model_dump_json(indent=2)
    if arguments.html:
        from service.dashboard.diff_page import render_diff  # the templates load for this option only

        arguments.html.write_text(render_diff(comparison))
    if arguments.json == "-":
        sys.stdout.write(f"{text}\n")
    else:
        if arguments.json:
            Path(arguments.json).write_text(f"{text}\n")
        show(comparison)
    return _DIFFERENT if arguments.exit_code and not comparison.same else 0


def _files(arguments: argparse.Namespace) -> Iterator[Path]:
    if arguments.html:
        yield arguments.html
    if arguments.json and arguments.json != "-":
        yield Path(arguments.json)


def _compare(
    old: str | ReleasedArtifacts, new: str | ReleasedArtifacts, arguments: argparse.Namespace
) -> Comparison:
    from exporter.comparison.compare import (  # torch loads only where it is needed
        ComparisonRequest,
        compare_releases,
        read_release,
    )
    from exporter.comparison.runs import RunOptions

    request = ComparisonRequest(
        towers=towers_of(arguments),
        runs=RunOptions(
            rows_uri=arguments.rows,
            items_uri=arguments.items,
            max_rows=arguments.max_rows,
            latency_seconds=arguments.latency_seconds,
        ),
        key=key_of(arguments),
        families=settings_or_exit(ExportSettings).families,
    )
    with tempfile.TemporaryDirectory(prefix="slipway-diff-") as folder:
        old, new = (read_release(side, request) if isinstance(side, str) else side for side in (old, new))
        return compare_releases(old, new, request, scratch=Path(folder))


def _resolve(side: str, client: Client) -> str | ReleasedArtifacts:
    """Return a URI as it is; look up in the service what is named by a job or a model."""
    is_model = side.startswith((_PROMOTED, _LATEST))
    if not is_model and (not is_job_id(side) or Path(side).exists()):
        return side
    if is_model and side.endswith(":"):
        raise InvalidSpec(f"{side} names no model", hint="write promoted:MODEL or latest:MODEL", where="side")
    if is_model:
        kind, _, model = side.partition(":")
        release = client.promoted(model) if f"{kind}:" == _PROMOTED else client.latest(model)
        towers = {tower.name: root_of(tower.manifest_uri) for tower in reversed(release.towers)}
        return ReleasedArtifacts(job_id=release.job_id, towers=towers)
    return ReleasedArtifacts(job_id=side, towers=_towers_of_job(client, side))


def _towers_of_job(client: Client, job_id: str) -> dict[TowerName, str]:
    """Return the artifact of each tower that a job published, or that the job published which it retries."""
    towers: dict[TowerName, str] = {}
    before: str | None = job_id
    while before is not None:
        job = client.get(before)
        if job.manifest_uri is not None:
            root = root_of(job.manifest_uri)
            published = (each.name for each in job.towers if (each.package_uri or "").startswith(root))
            towers = dict.fromkeys(published, root) | towers
        before = job.retry_of
    if not towers:
        raise InvalidSpec(
            f"job {job_id} has published nothing to compare",
            hint="wait for its end with `slipway watch`, or name another job",
            where="job",
        )
    return towers


def show(comparison: Comparison) -> None:
    """Print what differs: a line per subject, the first settings, and the tables that changed most."""
    out = console()
    for label, artifact in (("old", comparison.old), ("new", comparison.new)):
        made = f"{artifact.job_id}, {artifact.family}, {artifact.created_at}, {artifact.uri}"
        out.print(f"{label}: {escape_deceptive(made)}")
    if comparison.same:
        out.print("no differences in what is served")
    table = table_of("what", "difference", whole="what")
    table.show_header, table.box = False, None
    for subject, sentence in summarise(comparison):
        table.add_row(subject, sentence)
    out.print(table)
    if comparison.config.total:
        out.print(_settings("config", comparison.config))
    for tower in comparison.towers:
        if tower.interface.total:
            out.print(_settings(f"{tower.name} tower: inputs and dims", tower.interface))
        changed = [each for each in tower.tables if each.differs]
        if changed:
            out.print(_tables(f"{tower.name} tower: tables that changed most", changed))


def _settings(title: str, changes: Changes) -> Table:
    more = changes.total - _SHOWN
    table = table_of("where", "old", "new", title=title + (f", {more} more" if more > 0 else ""))
    table.box = None
    for change in changes.listed[:_SHOWN]:
        table.add_row(change.place, *(_setting(value) for value in (change.old, change.new)))
    return table


def _setting(value: str | None) -> str:
    if value is None:
        return "not set"
    return shorten(value, _CELL) or "set"


def _tables(title: str, tables: list[TableDiff]) -> Table:
    more = len(tables) - _SHOWN
    title += f", {more} more" if more > 0 else ""
    columns = ("rows", "changed", "added", "removed", "norm by at most", "cosine, mean", "least")
    table = table_of("table", *columns, title=title)
    table.box = None
    for each in tables[:_SHOWN]:
        rows = [f"{count:,}" if count is not None else "none" for count in (each.old_rows, each.new_rows)]
        table.add_row(
            each.name,
            rows[0] if rows[0] == rows[1] else " to ".join(rows),
            f"{each.rows_changed:,} ({share(each.share_changed)})",
            f"{each.rows_added:,}",
            f"{each.rows_removed:,}",
            *(_figure(value) for value in (each.largest_norm_change, each.mean_cosine, each.least_cosine)),
        )
    return table


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:  # NaN is refused too
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to 3600")
    return seconds
