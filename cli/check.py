"""`slipway check`: verify a model, or a published artifact, at many input sizes; nothing is published."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.table import Table

from cli.inspect import trace_table
from cli.options.artifact import add_key_option, key_of
from cli.options.code_cache import add_code_cache_option
from cli.options.family import list_families, take_own_family
from cli.settings import CheckSettings
from exporter.check.report import CheckReport, Finding, TowerCheck
from exporter.errors import InvalidSpec
from exporter.storage.local import LocalStore
from exporter.towers.plan import CheckRequest
from processes.settings import NO_CODE_CACHE
from processes.startup import settings_or_exit
from service.client.options import add_model_options, non_empty, request_of
from service.client.tables import console, sizes_text, table_of

_FAILED = 1
_SIZES, _SEED = 16, 20
_EXAMPLES = (
    "examples: slipway check --config pipeline.config --checkpoint model.ckpt-11 --item-input items.parquet "
    "--sample-input train.parquet --sizes 100; slipway check --artifact exports/01J..."
)


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `check`."""
    parser = subparsers.add_parser(
        "check",
        help="verify a model, or an artifact, at many input sizes",
        description="Verify a model's towers at random and chosen input sizes: their programs node by node, "
        "their packages against eager, twice each. Nothing is published. Exit code: 1 if anything fails.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--artifact",
        metavar="URI",
        type=non_empty,
        help="a published artifact, whose packages are verified against the sources in its manifest, or "
        "against those given by options",
    )
    add_key_option(parser)
    add_model_options(parser)
    parser.add_argument(
        "--sizes",
        type=_count,
        default=_SIZES,
        metavar="N",
        help="how many random sizes to try; default: %(default)s",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=_SEED,
        metavar="N",
        help="seed of the random sizes; default: %(default)s",
    )
    parser.add_argument(
        "--shrink",
        type=Path,
        metavar="FOLDER",
        help="reduce a failure to the smallest graph that still fails, and write it there as a script",
    )
    add_code_cache_option(parser)
    parser.add_argument("--json", action="store_true", help="print all findings as JSON")
    parser.set_defaults(run=run, needs="exporter")


def run(arguments: argparse.Namespace) -> int:
    """Run the checks and print their findings."""
    from exporter.check.artifact import (  # torch loads only where it is needed
        open_artifact,
        reconstruct_request,
    )
    from exporter.check.run import check
    from exporter.check.task import CheckTask
    from exporter.families.loading import offer_family

    if arguments.shrink is not None:
        LocalStore(arguments.shrink).require_writable()
    settings = settings_or_exit(CheckSettings)
    own = take_own_family(arguments)
    if own is not None:
        offer_family(own)
    code_cache: str | None = arguments.code_cache
    published = open_artifact(arguments.artifact, key_of(arguments)) if arguments.artifact else None
    base = reconstruct_request(published) if published else None
    if base is not None and "config_uri" not in base and not (arguments.config or arguments.spec):
        raise InvalidSpec(
            f"the manifest of {arguments.artifact} names no config: the export was given its text",
            hint="give the model's pipeline config with --config",
            where="config",
        )
    report = check(
        CheckTask(
            spec=request_of(arguments, CheckRequest, base=base),
            published=published,
            families=list_families(own),
            sizes=arguments.sizes,
            seed=arguments.seed,
            code_cache=None if code_cache == NO_CODE_CACHE else code_cache or settings.code_cache_uri,
            minify_into=arguments.shrink.absolute() if arguments.shrink else None,
        ),
        _progress_line(),
    )
    if arguments.json:
        print(report.model_dump_json(indent=2))
    else:
        show(report)
    return 0 if report.passed else _FAILED


def show(report: CheckReport) -> None:
    """Print a line per check of each tower, and a row per failed case; cases that fail alike share a row."""
    from exporter.check.cases import TITLES  # loads torch

    out = console()
    for tower in report.towers:
        out.print(_summary(tower, TITLES))
        if tower.failed:
            out.print(_failures(tower, TITLES))
        if tower.trace is not None:
            out.print(trace_table(tower.tower, tower.trace))
        if tower.failure is not None:
            hint = f"; {tower.failure.hint}" if tower.failure.hint else ""
            out.print(f"{tower.tower} tower: [{tower.failure.code}] {tower.failure.message}{hint}")
        if tower.smallest:
            out.print(f"{tower.tower} tower: {tower.smallest}")
    out.print(f"{'everything passed' if report.passed else 'FAILED'}; sizes drawn with seed {report.seed}")


def _summary(tower: TowerCheck, titles: Mapping[str, str]) -> Table:
    table = table_of("check", "cases", "failed", "worst, of what is allowed", title=f"{tower.tower} tower")
    for subject, title in titles.items():
        found = [finding for finding in tower.findings if finding.subject == subject]
        failed = sum(not finding.passed for finding in found)
        worst = max((each.of_allowed for each in found if each.of_allowed is not None), default=None)
        shown = "" if worst is None else f"{worst:.2%}"
        table.add_row(title, str(len(found)), str(failed), shown)
    return table


def _failures(tower: TowerCheck, titles: Mapping[str, str]) -> Table:
    table = table_of("check", "case", "sizes", "what", title=f"{tower.tower} tower, failed", whole="case")
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in tower.failed:
        alike.setdefault((finding.subject, finding.detail), []).append(finding)
    for (subject, detail), (first, *others) in alike.items():
        case = f"{first.case} and {len(others)} more" if others else first.case
        table.add_row(titles[subject], case, sizes_text(first.sizes), detail)
    return table


def _progress_line() -> Callable[[str, Finding], None]:
    """Return what shows the last finding on a terminal, in place; elsewhere it shows nothing."""
    from exporter.check.cases import TITLES

    if not sys.stderr.isatty():
        return lambda tower, finding: None
    return lambda tower, finding: print(
        f"\r\033[K{tower}: {TITLES[finding.subject]}: {finding.case}", end="\r", file=sys.stderr, flush=True
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of sizes")
    return int(text)
