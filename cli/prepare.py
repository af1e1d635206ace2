"""`slipway prepare`: unpack a published artifact for servers."""

import argparse
import json
from pathlib import Path

from cli.options.artifact import add_reading_options, add_towers_option, towers_of
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
    add_towers_option(parser, "unpack")
    add_reading_options(parser)
    parser.set_defaults(run=run, needs="exporter")


def run(arguments: argparse.Namespace) -> int:
    """Prepare, and print the folder."""
    # torch loads only for the commands that need it
    from exporter.serving.prepare_artifact import prepare_artifact

    folder = prepare_artifact(arguments.artifact, arguments.folder, arguments.verify, towers_of(arguments))
    print(json.dumps({"folder": str(folder)}) if arguments.json else f"prepared: {folder}")
    return 0
