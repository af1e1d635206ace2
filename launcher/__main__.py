"""Start Redis, the API and a worker, print their URLs, and stay: `python -m launcher`."""

import argparse
import sys
import time
from pathlib import Path

from exporter.errors import ExportError
from launcher.settings import LauncherSettings
from launcher.up import Stack, running_stack
from processes.interrupts import interrupt_on_end_signals
from processes.startup import format_error, settings_or_exit

_LOOK_S = 0.5


def main() -> int:
    """Run until interrupted; return 1 if a program does not start, or ends by itself again and again."""
    settings = _settings()
    interrupt_on_end_signals()
    try:
        with running_stack(
            settings.data_dir, host=settings.host, port=settings.port, redis_url=settings.redis_url
        ) as stack:
            _print_urls(stack)
            while True:
                for told in stack.restart_ended():
                    sys.stderr.write(f"{told}\n")
                time.sleep(_LOOK_S)
    except ExportError as error:
        sys.stderr.write(f"{format_error(error)}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 0


def _settings() -> LauncherSettings:
    defaults = settings_or_exit(LauncherSettings)
    parser = argparse.ArgumentParser(
        prog="python -m launcher",
        description="Start Redis (or use SLIPWAY_REDIS_URL), the API and a worker; ctrl-C stops them.",
        epilog="example: python -m launcher --port 9000 --data slipway-data",
    )
    parser.add_argument("--host", default=defaults.host, help="address of the API (default: %(default)s)")
    parser.add_argument(
        "--port", default=defaults.port, help="port of the API; 0: any free one (default: %(default)s)"
    )
    parser.add_argument(
        "--data", type=Path, default=defaults.data_dir, help="folder of data and logs (default: %(default)s)"
    )
    given = parser.parse_args()
    return settings_or_exit(lambda: LauncherSettings(host=given.host, port=given.port, data_dir=given.data))


def _print_urls(stack: Stack) -> None:
    sys.stdout.write(
        f"API     {stack.url}/exports\n"
        f"pages   {stack.url}/\n"
        f"docs    {stack.url}/docs\n"
        f"health  {stack.url}/readyz\n"
        f"logs    {stack.data_dir / 'logs'}\n"
        "stop with ctrl-C\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
