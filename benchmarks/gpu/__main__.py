"""Check the kernels on this machine's GPU, and measure them and packages with them.

`python -m benchmarks.gpu`. Kernels need torch (2.11 or later) and triton (3.6 or later) alone; packages need
an installed Slipway, and are left out where there is none. What was measured is written as it comes; short
tables come last.
"""

import argparse
import importlib.util
import json
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.gpu import attention, output
from benchmarks.gpu.check import check
from benchmarks.gpu.measure import Ceilings, ceilings

Part = Callable[["Run"], Iterator[str]]  # yields the lines of its table

_NEEDED_FOR_PACKAGES = ("fbgemm_gpu", "torchrec", "pyarrow", "pydantic")


class Run:
    """One call of the benchmark: where it writes, and how long it may take."""

    def __init__(self, out: Path, budget_s: float) -> None:
        self.out = out
        self._until = time.monotonic() + budget_s
        self._figures: dict[str, object] = {}
        self._ceilings: Ceilings | None = None
        out.mkdir(parents=True, exist_ok=True)

    @property
    def left_s(self) -> float:
        return self._until - time.monotonic()

    @property
    def ceilings(self) -> Ceilings:
        """Of this device, measured once."""
        if self._ceilings is None:
            self._ceilings = ceilings()
            self.keep("ceilings", asdict(self._ceilings))
        return self._ceilings

    def keep(self, name: str, figures: object) -> None:
        """Write gpu.json anew, with these figures in it."""
        self._figures[name] = figures
        (self.out / "gpu.json").write_text(json.dumps(self._figures, indent=1) + "\n")


def main() -> int:
    """1 if a kernel is wrong or a part could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu"), metavar="DIR")
    parser.add_argument(
        "--budget-seconds", type=float, default=1800, metavar="S", help="begin nothing after that"
    )
    given = parser.parse_args()
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} finds no CUDA device on this machine")
    run = Run(given.out, given.budget_seconds)
    tables, failed = [], []
    for name in PARTS:
        if given.parts and name not in given.parts:
            continue
        lines, is_well = _lines(name, run)
        tables += [f"\n{name}", *lines]
        failed += [] if is_well else [name]
    sys.stdout.write("\n".join(tables) + "\n")
    if failed:
        sys.stderr.write(f"did not end well: {', '.join(failed)}\n")
    return 1 if failed else 0


def _lines(name: str, run: Run) -> tuple[list[str], bool]:
    """The part's table, and whether all in it is as it should be; what it raised, if it did."""
    if run.left_s <= 0:
        return ["not begun: no time was left"], False
    sys.stdout.write(f"{name} ...\n")
    sys.stdout.flush()
    lines: list[str] = []
    try:
        lines.extend(PARTS[name](run))
    except Exception:  # noqa: BLE001  whatever is wrong with one part, the others are to be measured
        return [*lines, traceback.format_exc()], False
    return lines, not any(line.startswith("FAILED") for line in lines)


def _checked(run: Run) -> Iterator[str]:
    seed = secrets.randbits(32)
    lines = list(check([], seed=seed))
    run.keep("check", lines)
    yield from (line for line in lines[:-1] if line.startswith("FAILED"))
    yield lines[-1]


def _attention(run: Run) -> Iterator[str]:
    most = run.ceilings
    yield f"{most.device}: {most.matrix_tflops:.0f} TFLOP/s, {most.copy_tbps:.2f} TB/s"
    figures = attention.measure(most)
    run.keep("attention", attention.recorded(figures))
    yield attention.shown(figures)


def _output(run: Run) -> Iterator[str]:
    figures, tried = output.measure(run.ceilings)
    run.keep("output", output.recorded(figures, tried))
    yield output.shown(figures)


def _packages(run: Run) -> Iterator[str]:
    missing = [name for name in _NEEDED_FOR_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        yield f"left out: there is no {', '.join(missing)} here"
        return
    from benchmarks.gpu import packages

    yield from packages.measure(run.out, run.left_s)


PARTS: dict[str, Part] = {
    "check": _checked,
    "attention": _attention,
    "output": _output,
    "packages": _packages,
}

if __name__ == "__main__":
    sys.exit(main())
