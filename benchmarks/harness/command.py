"""The parts that every benchmark's command shares: options, a temporary folder, and a report."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.machine import Machine, load
from benchmarks.harness.report import RESULTS, Report, write_report
from benchmarks.harness.requirements import REQUIREMENTS, Requirements
from processes.interrupts import interrupt_on_end_signals

ROUNDS = 5  # measurements behind each median
_INTERRUPTED = 130
_FOLDER = Path(".slipway/bench")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a benchmark: number of rounds, tiny sizes or real ones, and the folder to work in."""

    rounds: int
    quick: bool
    folder: Path

    def say(self, text: str) -> None:
        """Print progress with the time of day."""
        sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        sys.stdout.flush()


def build_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        epilog=f"Requirements {REQUIREMENTS[name].text()}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="run with tiny sizes, only to see that it works")
    parser.add_argument(
        "--folder", type=Path, default=_FOLDER, metavar="DIR", help="folder to work in; default: %(default)s"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    return parser


def run_benchmark(name: str, given: argparse.Namespace, measure: Callable[[Run], Report]) -> int:
    """Measure in a temporary folder, write the report, and return the exit code.

    An interrupt leaves no files and writes no report; the code is then 130. It is 1 if the disk is too small.
    """
    interrupt_on_end_signals()
    parent: Path = given.folder.absolute()
    parent.mkdir(parents=True, exist_ok=True)
    if not given.quick and (missing := _missing(REQUIREMENTS[name], parent)):
        sys.stderr.write(f"{name} needs {missing / 1e9:.0f} GB more of disk below {parent}\n")
        return 1
    begun, load_before = time.monotonic(), load()
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=f"{name}-", ignore_cleanup_errors=True) as folder:
            report = measure(Run(rounds=given.rounds, quick=given.quick, folder=Path(folder)))
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: interrupted; nothing was written\n")
        return _INTERRUPTED
    write_report(
        report,
        name=name,
        machine=Machine.describe(load_before),
        seconds=time.monotonic() - begun,
        folder=given.results,
    )
    return 0


def _missing(requirements: Requirements, folder: Path) -> float:
    """Return how many bytes of disk space are missing."""
    return max(0.0, requirements.disk_gb * 1e9 - shutil.disk_usage(folder).free)
