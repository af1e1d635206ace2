"""Options of commands that read a published artifact."""

import argparse
from pathlib import Path

from exporter.artifact.signing import VerifyingKey
from exporter.spec import TowerName


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add --verify and --json."""
    add_key_option(parser)
    parser.add_argument("--json", action="store_true", help="print the result, or the error, as JSON")


def add_key_option(parser: argparse.ArgumentParser, name: str = "--verify") -> None:
    """Add the option for the public key."""
    parser.add_argument(
        name,
        dest="verify",
        metavar="KEY",
        type=Path,
        help="public key; an artifact that is not signed with it is refused",
    )


def add_towers_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --tower, which may be repeated; `what` says what becomes of those named."""
    parser.add_argument(
        "--tower",
        action="append",
        dest="towers",
        default=[],
        choices=[name.value for name in TowerName],
        help=f"tower to {what}; may be repeated; default: all",
    )


def key_of(arguments: argparse.Namespace) -> VerifyingKey | None:
    """Return the key that was named, if any; raise InvalidSpec if its file holds none."""
    return VerifyingKey(arguments.verify) if arguments.verify is not None else None


def towers_of(arguments: argparse.Namespace) -> tuple[TowerName, ...]:
    """Return the towers that were named, each once."""
    return tuple(TowerName(name) for name in dict.fromkeys(arguments.towers))
