"""`slipway predict`: run rows through a published package, in a separate process."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cli.options.artifact import add_reading_options, key_of
from cli.settings import ExportSettings
from exporter.spec import TowerName
from processes.startup import settings_or_exit
from service.client.options import non_empty

_EXAMPLE = (
    "example: slipway predict --artifact out/01J... --tower item --input items.parquet --output out.parquet"
)

_LINE_EVERY_S = 5.0


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `predict`."""
    parser = subparsers.add_parser(
        "predict",
        help="run rows through a published package",
        description="Run rows through a published package, in a separate process.",
        epilog=_EXAMPLE,
    )
    parser.add_argument(
        "--artifact", metavar="URI", required=True, type=non_empty, help="the artifact's folder or manifest"
    )
    parser.add_argument(
        "--tower",
        required=True,
        choices=[name.value for name in TowerName],
        help="tower to run the rows through",
    )
    parser.add_argument(
        "--input", metavar="URI", required=True, help="parquet file with the tower's features"
    )
    parser.add_argument(
        "--output", metavar="URI", required=True, help="parquet file to write; it must not exist yet"
    )
    ids = parser.add_mutually_exclusive_group()
    ids.add_argument(
        "--id-column",
        metavar="NAME",
        type=non_empty,
        help="column of the input to copy before the outputs; default: the ids of the artifact's item "
        "vectors, or the tower's first id feature that is no sequence",
    )
    ids.add_argument("--outputs-only", action="store_true", help="write the outputs alone, without ids")
    add_reading_options(parser)
    parser.set_defaults(run=run, needs="exporter")


def run(arguments: argparse.Namespace) -> int:
    """Predict, and print how many rows were written."""
    from exporter.serving.downloaded_tower import download_tower
    from exporter.serving.predict import (  # torch loads only for the commands that need it
        PredictionFiles,
        find_id_column,
        predict,
    )

    with tempfile.TemporaryDirectory(prefix="slipway-predict-") as folder:
        scratch = Path(folder)
        tower = download_tower(
            arguments.artifact,
            TowerName(arguments.tower),
            scratch / "artifact",
            key_of(arguments),
            families=settings_or_exit(ExportSettings).families,
        )
        ids = None if arguments.outputs_only else find_id_column(tower, arguments.input, arguments.id_column)
        files = PredictionFiles(arguments.input, arguments.output, id_column=ids)
        rows = predict(tower, files, scratch=scratch, on_rows=_progress())
    if arguments.json:
        print(json.dumps({"rows": rows, "output": arguments.output, "id_column": ids}))
    else:
        print(f"{rows:,} rows written to {arguments.output}" + (f", with {ids}" if ids else ""))
    return 0


def _progress() -> Callable[[int], None]:
    """Return a listener that shows the rows so far, in place on a terminal and else every few seconds."""
    if sys.stderr.isatty():
        return lambda rows: print(f"\r{rows:,} rows", end="\r", file=sys.stderr, flush=True)
    printed_at = time.monotonic()

    def print_rows(rows: int) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at > _LINE_EVERY_S:
            printed_at = time.monotonic()
            print(f"{rows:,} rows", file=sys.stderr, flush=True)

    return print_rows
