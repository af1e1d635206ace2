"""`slipway prepare`: unpack a published artifact for servers."""

import argparse
import json
from pathlib import Path

from exporter.spec import TowerName
from service.client.options import non_empty

_EXAMPLE = "example: slipway prepare s3://models/retrieval/01J... /srv/models/01J..."


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `prepare`."""
    parser = subparsers.add_parser(
        "prepare",
        help="unpack a published artifact for servers",
        description="Unpack a published artifact to a folder whose weights all processes of a host can share "
        "as pages of its files, and which slipway.loader loads in milliseconds. Every digest is checked.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("artifact", metavar="URI", type=non_empty, help="the artifact's folder or manifest")
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder to write; it must not exist yet")
    parser.add_argument(
        "--tower",
        action="append",
        default=[],
        choices=[name.value for name in TowerName],
        help="tower to unpack, may be repeated; default: all",
    )
    parser.add_argument(
        "--verify",
        metavar="KEY",
        type=Path,
        help="public key; an artifact that is not signed with it is refused",
    )
    parser.add_argument("--json", action="store_true", help="print the result, or the error, as JSON")
    parser.set_defaults(run=run, needs="exporter")


def run(arguments: argparse.Namespace) -> int:
    """Prepare, and print the folder."""
    # torch loads only for the commands that need it
    from exporter.serving.prepare_artifact import prepare_artifact

    towers = tuple(TowerName(name) for name in arguments.tower)
    folder = prepare_artifact(arguments.artifact, arguments.folder, arguments.verify, towers)
    print(json.dumps({"folder": str(folder)}) if arguments.json else f"prepared: {folder}")
    return 0
