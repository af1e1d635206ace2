"""`slipway up`: Redis, the API and a worker on this machine, for as long as somebody wants them."""

import argparse

from launcher.run import DESCRIPTION, add_options, run

_EXAMPLE = "example: slipway up --port 9000 --data slipway-data"


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `up`."""
    parser = subparsers.add_parser(
        "up", help="start Redis, the API and a worker here", description=DESCRIPTION, epilog=_EXAMPLE
    )
    add_options(parser)
    parser.set_defaults(run=run)
