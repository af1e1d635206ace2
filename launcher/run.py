"""Run everything until a person stops it: what `slipway up` and `python -m launcher` do."""

import argparse
import sys
import time
from pathlib import Path

from processes.extras import require_extras

_LOOK_S = 0.5
DESCRIPTION = (
    "Start Redis (or use SLIPWAY_REDIS_URL), the API and a worker on this machine, print their URLs, and "
    "keep running; ctrl-C stops them. Data is kept for the next time."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options, without defaults: what is not given, the environment decides."""
    parser.add_argument("--host", help="address of the API (default: SLIPWAY_HOST, else 127.0.0.1)")
    parser.add_argument("--port", help="port of the API; 0: any free one (default: SLIPWAY_PORT, else 8080)")
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        type=Path,
        help="folder of data, logs and workspaces (default: SLIPWAY_DATA_DIR, else .slipway in this folder)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until interrupted.

    Raises:
        MissingExtra: packages are not installed; nothing was started.
        LaunchFailed: a program does not start, or ends by itself again and again.
    """
    require_extras("service", "worker", "exporter", asked="up")
    from launcher.settings import LauncherSettings  # imports what the extra brings
    from launcher.up import running_stack
    from processes.startup import settings_or_exit

    options = {"host": arguments.host, "port": arguments.port, "data_dir": arguments.data}
    given = {name: value for name, value in options.items() if value is not None}
    settings = settings_or_exit(lambda: LauncherSettings(**given))
    try:
        with running_stack(
            settings.data_dir, host=settings.host, port=settings.port, redis_url=settings.redis_url
        ) as stack:
            _print_places(stack.url, stack.data_dir)
            while True:
                for told in stack.restart_ended():
                    sys.stderr.write(f"{told}\n")
                time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 0


def _print_places(url: str, data_dir: Path) -> None:
    sys.stdout.write(
        f"API     {url}/exports\n"
        f"pages   {url}/\n"
        f"docs    {url}/docs\n"
        f"health  {url}/readyz\n"
        f"data    {data_dir}\n"
        f"logs    {data_dir / 'logs'}\n"
        "stop with ctrl-C\n"
    )
    sys.stdout.flush()
