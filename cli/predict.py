"""`slipway predict`: rows through a published package, in a process of its own."""

import argparse
import sys
import tempfile
from pathlib import Path

from exporter.spec import TowerName

_EXAMPLE = (
    "example: slipway predict --artifact out/01J... --tower item --input items.parquet --output out.parquet"
)


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `predict`."""
    parser = subparsers.add_parser(
        "predict", help="run rows through a published package", description=__doc__, epilog=_EXAMPLE
    )
    parser.add_argument("--artifact", metavar="URI", required=True, help="the artifact's folder or manifest")
    parser.add_argument("--tower", required=True, choices=[name.value for name in TowerName])
    parser.add_argument("--input", metavar="URI", required=True, help="parquet with the tower's features")
    parser.add_argument("--output", metavar="URI", required=True, help="parquet to write; must not exist")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Predict, and say how many rows were written."""
    from exporter.predict import download, predict  # torch loads only for the commands that need it

    with tempfile.TemporaryDirectory(prefix="slipway-predict-") as folder:
        scratch = Path(folder)
        served = download(arguments.artifact, TowerName(arguments.tower), scratch / "artifact")
        rows = predict(served, arguments.input, arguments.output, scratch=scratch, progress=_show)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(f"{rows:,} rows written to {arguments.output}")
    return 0


def _show(_fraction: float, detail: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{detail}", end="", file=sys.stderr, flush=True)
