"""`slipway prove`: run a published artifact on its own sample requests, and compare the answers."""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.options.artifact import add_reading_options, add_towers_option, key_of, towers_of
from cli.settings import ExportSettings
from exporter.artifact.read import read_manifest, require_towers, root_of
from processes.startup import settings_or_exit
from service.client.options import non_empty
from service.client.tables import console, sizes_text, table_of

if TYPE_CHECKING:
    from exporter.serving.prove import Proof  # loads torch

_FAILED = 1
_EXAMPLE = "example: slipway prove exports/01J... --tower item"


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `prove`."""
    parser = subparsers.add_parser(
        "prove",
        help="run a published artifact on its own sample requests",
        description="Run a published artifact's packages on the sample requests in it, each tower in a fresh "
        "process, and compare with the answers that the export published. Exit code: 1 if any differs by "
        "more than the export allowed.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("artifact", metavar="URI", type=non_empty, help="the artifact's folder or manifest")
    add_towers_option(parser, "run")
    add_reading_options(parser)
    parser.set_defaults(run=run, needs="exporter")


def run(arguments: argparse.Namespace) -> int:
    """Prove the towers, one after the other."""
    from exporter.serving.prove import prove_artifact  # torch loads only for the commands that need it

    uri, key = arguments.artifact, key_of(arguments)
    towers = require_towers(read_manifest(uri, key), towers_of(arguments), root_of(uri))
    families = settings_or_exit(ExportSettings).families
    proofs = [prove_artifact(uri, tower.name, key, families) for tower in towers]
    if arguments.json:
        print(json.dumps([proof.model_dump(mode="json") for proof in proofs], indent=2))
    else:
        show_proofs(proofs)
        passed = all(proof.passed for proof in proofs)
        print("every answer is the published one" if passed else "FAILED")
    return 0 if all(proof.passed for proof in proofs) else _FAILED


def show_proofs(proofs: "Sequence[Proof]") -> None:
    """Print how far each answer is from the published one."""
    out = console()
    for proof in proofs:
        table = table_of("request", "sizes", "result", title=f"{proof.tower} tower, sample requests")
        for case in proof.cases:
            largest = max(case.differences.values(), default=0.0)
            table.add_row(case.name, sizes_text(case.sizes), case.problem or f"differs by {largest:.2g}")
        out.print(table)
