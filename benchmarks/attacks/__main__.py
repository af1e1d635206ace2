"""Run every attack of this folder in turn, or the named ones: `python -m benchmarks.attacks [NAME ...]`.

An attack is a module beside this one. It starts real programs on this machine, attacks them over loopback,
prints a line for each figure, `what: measured (bound …)`, and ends with status 1 if a bound was missed.
"""

import argparse
import pkgutil
import sys
from pathlib import Path

from benchmarks.gpu.guarded_command import run_guarded
from processes.interrupts import interrupt_on_end_signals

_INTERRUPTED = 130
_LIMIT_S = 600.0  # for one attack


def attack_names() -> list[str]:
    """Return the names of all attacks."""
    found = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(module.name for module in found if not module.name.startswith("_"))


def main() -> int:
    """Run the chosen attacks; return 1 if one missed a bound or failed, which does not stop the others."""
    names = attack_names()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attacks",
        description="Attack programs that run on this machine, and compare what it costs them with a bound.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default: all")
    given = parser.parse_args()
    if unknown := set(given.names) - set(names):
        parser.error(f"there is no attack {', '.join(sorted(unknown))}")
    interrupt_on_end_signals()
    failed = []
    for name in given.names or names:
        _say(f"{name}:")
        try:
            ending = run_guarded([sys.executable, "-m", f"benchmarks.attacks.{name}"], limit_s=_LIMIT_S)
        except KeyboardInterrupt:
            return _INTERRUPTED
        if ending:
            _say(ending)
            failed.append(name)
    _say(f"missed a bound or failed: {', '.join(failed)}" if failed else "all bounds were kept")
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
