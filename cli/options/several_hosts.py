"""The options of an export whose ranks are spread over several hosts."""

import argparse
from datetime import timedelta

from cli.errors import InvalidCommand
from exporter.distributed.rendezvous import Rendezvous, parse_rendezvous
from exporter.errors import InvalidSpec
from exporter.spec import ExportSpec

_DAY_S = 86_400.0


def add_host_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an export on several hosts."""
    parser.add_argument(
        "--rdzv",
        metavar="HOST:PORT",
        help="where the hosts meet: an address of one of them that all can reach; required with --nodes. "
        "Use a trusted network only: whoever can connect there can run code on all hosts",
    )
    parser.add_argument(
        "--rdzv-timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="how long a host waits for the others (default: 600)",
    )


def rendezvous_of(spec: ExportSpec, arguments: argparse.Namespace) -> Rendezvous | None:
    """Return where this host meets the others, or None for a single host."""
    hosts = spec.nodes or 1
    if (hosts > 1) != (arguments.rdzv is not None):
        raise InvalidCommand(
            "--rdzv is required with --nodes of two or more, and only then", hint="see --help"
        )
    if not 0 < arguments.rdzv_timeout <= _DAY_S:
        raise InvalidCommand("--rdzv-timeout must be above 0 seconds and a day at most")
    if hosts == 1:
        return None
    if len(spec.targets) > 1:
        raise InvalidSpec("an export on several hosts takes only one target", where="target")
    return parse_rendezvous(arguments.rdzv, hosts=hosts, time_limit=timedelta(seconds=arguments.rdzv_timeout))
