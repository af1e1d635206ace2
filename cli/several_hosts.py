"""The options of an export on several hosts."""

import argparse
from datetime import timedelta

from cli.errors import InvalidCommand
from exporter.distributed.rendezvous import Rendezvous, parse_rendezvous
from exporter.errors import InvalidSpec
from exporter.spec import ExportSpec

_DAY_S = 86_400.0


def add_host_options(parser: argparse.ArgumentParser) -> None:
    """Add those of an export on several hosts."""
    parser.add_argument(
        "--rdzv",
        metavar="HOST:PORT",
        help="where they meet: an address of one of them, which all reach; needed with --nodes. "
        "On a trusted network only: who can connect there can have code run on all of them",
    )
    parser.add_argument(
        "--rdzv-timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="how long a host waits there for the last one (default: 600)",
    )


def place_of(spec: ExportSpec, arguments: argparse.Namespace) -> Rendezvous | None:
    """Where this host meets the others; None if there are none."""
    hosts = spec.nodes or 1
    if (hosts > 1) != (arguments.rdzv is not None):
        raise InvalidCommand("--nodes, of two or more, and --rdzv go together", hint="see --help")
    if not 0 < arguments.rdzv_timeout <= _DAY_S:
        raise InvalidCommand("--rdzv-timeout is a number of seconds above 0, of a day at most")
    if hosts == 1:
        return None
    if len(spec.targets) > 1:
        raise InvalidSpec("several hosts export for one target at a time", where="target")
    return parse_rendezvous(arguments.rdzv, hosts=hosts, time_limit=timedelta(seconds=arguments.rdzv_timeout))
