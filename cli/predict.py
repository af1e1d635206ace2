"""`slipway predict`: rows through a published package, in a process of its own."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cli.settings import ExportSettings
from exporter.artifact.signing import VerifyingKey
from exporter.spec import TowerName
from processes.startup import settings_or_exit
from service.client.options import named

_EXAMPLE = (
    "example: slipway predict --artifact out/01J... --tower item --input items.parquet --output out.parquet"
)

_LINE_EVERY_S = 5.0


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `predict`."""
    parser = subparsers.add_parser(
        "predict", help="run rows through a published package", description=__doc__, epilog=_EXAMPLE
    )
    parser.add_argument(
        "--artifact", metavar="URI", required=True, type=named, help="the artifact's folder or manifest"
    )
    parser.add_argument("--tower", required=True, choices=[name.value for name in TowerName])
    parser.add_argument("--input", metavar="URI", required=True, help="parquet with the tower's features")
    parser.add_argument("--output", metavar="URI", required=True, help="parquet to write; must not exist")
    parser.add_argument(
        "--verify", metavar="KEY", type=Path, help="refuse what this public key has not signed"
    )
    parser.add_argument("--json", action="store_true", help="print the result, or the error, as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Predict, and say how many rows were written."""
    from exporter.serving.downloaded_tower import download
    from exporter.serving.predict import predict  # torch loads only for the commands that need it

    with tempfile.TemporaryDirectory(prefix="slipway-predict-") as folder:
        scratch = Path(folder)
        key = VerifyingKey(arguments.verify) if arguments.verify else None
        served = download(
            arguments.artifact,
            TowerName(arguments.tower),
            scratch / "artifact",
            key,
            families=settings_or_exit(ExportSettings).families,
        )
        rows = predict(served, arguments.input, arguments.output, scratch=scratch, on_rows=_shown())
    if arguments.json:
        print(json.dumps({"rows": rows, "output": arguments.output}))
    else:
        print(f"{rows:,} rows written to {arguments.output}")
    return 0


def _shown() -> Callable[[int], None]:
    """How to show the number of rows so far: in place on a terminal, else a line now and then."""
    if sys.stderr.isatty():
        return lambda rows: print(f"\r{rows:,} rows", end="\r", file=sys.stderr, flush=True)
    said_at = time.monotonic()

    def say(rows: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at > _LINE_EVERY_S:
            said_at = time.monotonic()
            print(f"{rows:,} rows", file=sys.stderr, flush=True)

    return say
