"""`slipway prove`: run a published artifact on its own sample requests, and compare the answers."""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cli.settings import ExportSettings
from exporter.artifact.read import find_tower, read_manifest, root_of
from exporter.artifact.signing import VerifyingKey
from exporter.spec import TowerName
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
    parser.add_argument(
        "--tower",
        action="append",
        dest="towers",
        choices=[name.value for name in TowerName],
        help="a tower to run; may be repeated; default: all of the artifact",
    )
    parser.add_argument(
        "--verify",
        metavar="KEY",
        type=Path,
        help="public key; an artifact that is not signed with it is refused",
    )
    parser.add_argument("--json", action="store_true", help="print the results, or the error, as JSON")
    parser.set_defaults(run=run, needs="exporter")


def run(arguments: argparse.Namespace) -> int:
    """Prove the towers, one after the other."""
    from exporter.serving.downloaded_tower import download_tower
    from exporter.serving.prove import prove  # torch loads only for the commands that need it

    uri: str = arguments.artifact
    key = VerifyingKey(arguments.verify) if arguments.verify else None
    manifest = read_manifest(uri, key)
    named = [TowerName(name) for name in arguments.towers or [tower.name for tower in manifest.towers]]
    towers = [find_tower(manifest, name, root_of(uri)).name for name in dict.fromkeys(named)]
    families = settings_or_exit(ExportSettings).families
    proofs: list[Proof] = []
    for name in towers:
        with tempfile.TemporaryDirectory(prefix="slipway-prove-") as folder:
            scratch = Path(folder)
            tower = download_tower(uri, name, scratch / "artifact", key, families=families)
            proofs.append(prove(tower, scratch=scratch))
    if arguments.json:
        print(json.dumps([proof.model_dump(mode="json") for proof in proofs], indent=2))
    else:
        _show(proofs)
    return 0 if all(proof.passed for proof in proofs) else _FAILED


def _show(proofs: "Sequence[Proof]") -> None:
    out = console()
    for proof in proofs:
        table = table_of("request", "sizes", "result", title=f"{proof.tower} tower, sample requests")
        for case in proof.cases:
            largest = max(case.differences.values(), default=0.0)
            table.add_row(case.name, sizes_text(case.sizes), case.problem or f"differs by {largest:.2g}")
        out.print(table)
    out.print("every answer is the published one" if all(each.passed for each in proofs) else "FAILED")
