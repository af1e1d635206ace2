"""The option that says where compiled code is kept between exports."""

import argparse
from pathlib import Path

from processes.settings import NO_CODE_CACHE


def add_code_cache_option(parser: argparse.ArgumentParser) -> None:
    """Add `--code-cache`; what is not given is left to the environment."""
    parser.add_argument(
        "--code-cache",
        metavar="URI",
        type=_absolute,
        help="folder or object-store prefix of compiled code that exports share; or off "
        "(default: SLIPWAY_CODE_CACHE, else a folder of yours)",
    )


def _absolute(code_cache: str) -> str:
    """A plain path is taken from here: attempts have another working directory."""
    if code_cache == NO_CODE_CACHE or "://" in code_cache:
        return code_cache
    return str(Path(code_cache).absolute())
