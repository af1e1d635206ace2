"""Run the benchmarks, or those that are named, one after the other: `python -m benchmarks [NAME ...]`."""

import argparse
import contextlib
import subprocess
import sys

from benchmarks.harness.requirements import REQUIREMENTS, Requirements
from processes.interrupts import interrupt_on_end_signals

_INTERRUPTED = 130
_PATIENCE_S = 15.0


def main() -> int:
    """1 when any did not end well; the others are run all the same."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run all benchmarks, or those that are named; results go to benchmarks/results/.",
        epilog="\n".join(f"{name:14} {needs.text()}" for name, needs in REQUIREMENTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(REQUIREMENTS)}; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, only to see that they work")
    parser.add_argument("--results", metavar="DIR", help="default: benchmarks/results")
    given = parser.parse_args()
    if unknown := set(given.names) - REQUIREMENTS.keys():
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    interrupt_on_end_signals()
    chosen = [name for name in REQUIREMENTS if name in given.names or not given.names]
    options = ["--quick"] * given.quick + (["--results", given.results] if given.results else [])
    sys.stdout.write(f"{', '.join(chosen)}: {_altogether(chosen).text()}\n")
    sys.stdout.flush()
    failed = []
    for name in chosen:
        status = _run([sys.executable, "-m", f"benchmarks.{name}", *options])
        if status == _INTERRUPTED:
            return _INTERRUPTED
        if status:
            failed.append(name)
    if failed:
        sys.stderr.write(f"did not end well: {', '.join(failed)}\n")
    return 1 if failed else 0


def _run(command: list[str]) -> int:
    """Its exit status; interrupted, it is given the time to clean up after itself."""
    with subprocess.Popen(command) as benchmark:
        try:
            return benchmark.wait()
        except KeyboardInterrupt:
            with contextlib.suppress(subprocess.TimeoutExpired):  # ctrl-C reaches it as well
                benchmark.wait(_PATIENCE_S)
            benchmark.terminate()
            benchmark.wait()
            return _INTERRUPTED


def _altogether(names: list[str]) -> Requirements:
    """The disk is given back after each."""
    needs = [REQUIREMENTS[name] for name in names]
    return Requirements(
        minutes=sum(each.minutes for each in needs), disk_gb=max(each.disk_gb for each in needs)
    )


if __name__ == "__main__":
    sys.exit(main())
