"""Start Redis, the API and a worker, print their URLs, and stay: `python -m launcher`, as `slipway up`."""

import argparse
import sys

from exporter.errors import ExportError
from launcher.run import DESCRIPTION, add_options, run
from processes.interrupts import interrupt_on_end_signals
from processes.startup import format_error


def main() -> int:
    """Run until interrupted; return 1 if a program does not start, or ends by itself again and again."""
    parser = argparse.ArgumentParser(
        prog="python -m launcher",
        description=DESCRIPTION,
        epilog="example: python -m launcher --port 9000 --data slipway-data",
    )
    add_options(parser)
    interrupt_on_end_signals()
    try:
        return run(parser.parse_args())
    except ExportError as error:
        sys.stderr.write(f"{format_error(error)}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
