"""Run all benchmarks, or the named ones, one after the other: `python -m benchmarks [NAME ...]`."""

import argparse
import contextlib
import subprocess
import sys

from benchmarks.harness.requirements import REQUIREMENTS, Requirements
from processes.interrupts import interrupt_on_end_signals

_INTERRUPTED = 130
_PATIENCE_S = 15.0


def main() -> int:
    """Run the chosen benchmarks; return 1 if one of them failed, which does not stop the others."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run all benchmarks, or the named ones; results go to benchmarks/results/.",
        epilog="\n".join(f"{name:14} {required.text()}" for name, required in REQUIREMENTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(REQUIREMENTS)}; default: all"
    )
    parser.add_argument(
        "--quick", action="store_true", help="run with tiny sizes, only to see that they work"
    )
    parser.add_argument("--results", metavar="DIR", help="default: benchmarks/results")
    parser.add_argument("--peer", metavar="COMMAND", help="the program that `peer` compares Slipway with")
    given = parser.parse_args()
    if unknown := set(given.names) - REQUIREMENTS.keys():
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    interrupt_on_end_signals()
    chosen = [name for name in REQUIREMENTS if name in given.names or not given.names]
    if given.peer is None:
        for name in [name for name in chosen if REQUIREMENTS[name].option]:
            sys.stdout.write(f"{name}: {REQUIREMENTS[name].skipped}\n")
            chosen.remove(name)
    options = ["--quick"] * given.quick + (["--results", given.results] if given.results else [])
    sys.stdout.write(f"{', '.join(chosen)}: {_total_requirements(chosen).text()}\n")
    sys.stdout.flush()
    failed = []
    for name in chosen:
        peer = ["--peer", given.peer] if REQUIREMENTS[name].option else []
        status = _run([sys.executable, "-m", f"benchmarks.{name}", *options, *peer])
        if status == _INTERRUPTED:
            return _INTERRUPTED
        if status:
            failed.append(name)
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return 1 if failed else 0


def _run(command: list[str]) -> int:
    """Run a command and return its exit status; on an interrupt, give it time to clean up first."""
    with subprocess.Popen(command) as benchmark:
        try:
            return benchmark.wait()
        except KeyboardInterrupt:
            with contextlib.suppress(subprocess.TimeoutExpired):  # ctrl-C reaches the benchmark as well
                benchmark.wait(_PATIENCE_S)
            benchmark.terminate()
            benchmark.wait()
            return _INTERRUPTED


def _total_requirements(names: list[str]) -> Requirements:
    """Return what running these takes: their minutes add up, their disk space is freed in between."""
    each_required = [REQUIREMENTS[name] for name in names]
    return Requirements(
        minutes=sum(each.minutes for each in each_required),
        disk_gb=max((each.disk_gb for each in each_required), default=0),
    )


if __name__ == "__main__":
    sys.exit(main())
