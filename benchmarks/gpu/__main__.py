"""Check the kernels on this machine's GPU, and measure kernels and packages: `python -m benchmarks.gpu`.

Kernels need only torch (2.11 or later) and triton (3.6 or later). Packages need an installed Slipway, and are
left out where there is none. Results are written while parts run, and short tables are printed at the end. A
part that raises, hangs or dies, and a Ctrl-C, leave the results so far.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.gpu.guarded_command import run_guarded
from benchmarks.gpu.part_process import PARTS

_SPARE_S = 120.0  # for work that began in time
_LONGEST_S = 900.0  # limit of every part but `packages`, which limits its own processes

Command = Callable[[str, float], Sequence[str]]  # builds the command of a part with this many seconds left


def main() -> int:
    """Run the chosen parts; return 1 if a kernel is wrong or a part failed, 130 after an interrupt."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; default: all")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu"), metavar="DIR")
    parser.add_argument(
        "--budget-seconds",
        type=float,
        default=1800,
        metavar="S",
        help="begin nothing after this many seconds",
    )
    given = parser.parse_args()
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} finds no CUDA device on this machine")

    def command(name: str, left_s: float) -> Sequence[str]:
        return [sys.executable, "-m", "benchmarks.gpu.part_process", name, str(given.out), str(left_s)]

    wanted = [name for name in PARTS if not given.parts or name in given.parts]
    return run_parts(wanted, given.out, given.budget_seconds, command)


def run_parts(parts: Sequence[str], out: Path, budget_s: float, command: Command) -> int:
    """Run each part, then print all tables; return the exit code of `main`."""
    out.mkdir(parents=True, exist_ok=True)
    for old in ("gpu.json", *(f"{name}.txt" for name in parts)):
        (out / old).unlink(missing_ok=True)
    until, endings = time.monotonic() + budget_s, dict.fromkeys(parts, "not begun: no time was left")
    is_interrupted = False
    for name in parts:
        if (left_s := until - time.monotonic()) <= 0:
            break
        sys.stdout.write(f"{name} ...\n")
        sys.stdout.flush()
        limit_s = left_s + _SPARE_S if name == "packages" else min(left_s + _SPARE_S, _LONGEST_S)
        try:
            endings[name] = run_guarded(command(name, left_s), limit_s=limit_s)
        except KeyboardInterrupt:
            endings |= dict.fromkeys(parts[parts.index(name) :], "interrupted")
            is_interrupted = True
            break
    for name, ending in endings.items():
        table = out / f"{name}.txt"
        lines = table.read_text() if table.exists() else ""
        sys.stdout.write("\n".join(filter(None, [f"\n{name}", lines.rstrip("\n"), ending])) + "\n")
    if failed := [name for name, ending in endings.items() if ending]:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return 130 if is_interrupted else min(len(failed), 1)


if __name__ == "__main__":
    sys.exit(main())
