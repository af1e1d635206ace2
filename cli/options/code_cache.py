"""The option `--code-cache`: where compiled code is kept between exports."""

import argparse
from pathlib import Path

from processes.settings import NO_CODE_CACHE


def add_code_cache_option(parser: argparse.ArgumentParser) -> None:
    """Add `--code-cache`, without a default: if it is not given, the environment decides."""
    parser.add_argument(
        "--code-cache",
        metavar="URI",
        type=_absolute,
        help="folder or object-store prefix where exports share compiled code, or off "
        "(default: SLIPWAY_CODE_CACHE, else ~/.cache/slipway/code)",
    )


def _absolute(code_cache: str) -> str:
    """Make a plain path absolute: attempts have another working directory."""
    if code_cache == NO_CODE_CACHE or "://" in code_cache:
        return code_cache
    return str(Path(code_cache).absolute())
