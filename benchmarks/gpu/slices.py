"""Run one slice of the GPU's tests and benchmarks, for a machine that is there for minutes at a time.

    python -m benchmarks.gpu.slices SLICE --out DIR

A slice ends within its seconds, and what it found by then is in DIR: `SLICE-N.log` of each of its commands,
written while it runs, and of pytest's also `SLICE-N.xml`. The commands that are left begin whatever became of
those before. What fails is repaired, and the slice is run again.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.guarded_command import run_guarded

_SECONDS = 570.0  # of a slice, unless it is told otherwise
_SPARE_S = 30.0  # for a benchmark that began its last case in time
_LOW = "int8 or int4 or bf16 or fp16 or tf32"
_CALLS = "two_runners or another_gpu"
_HSTU = "(hstu_match or dlrm_hstu) and not trunc"
_TWO_MODES = "trunc or dssm or dat or mind or multi_tower_din or dbmtl"  # of which dssm_v2 is none
_EXPORTS = "tests/gpu/test_exports.py"

# What each slice runs: pytest with options, or the parts of benchmarks.gpu.
SLICES: Mapping[str, Sequence[Sequence[str]]] = {
    "kernels": (("pytest", "tests/gpu/test_kernels.py"), ("benchmark", "check")),
    "hstu": (("pytest", _EXPORTS, "-k", f"{_HSTU} and not ({_LOW} or {_CALLS})"),),
    "families": (("pytest", _EXPORTS, "-k", f"({_TWO_MODES}) and not (dssm_v2 or {_LOW} or {_CALLS})"),),
    "more-families": (
        ("pytest", _EXPORTS, "-k", f"not ({_HSTU} or ({_TWO_MODES}) and not dssm_v2 or {_LOW} or {_CALLS})"),
    ),
    "precision": (("pytest", _EXPORTS, "-k", f"({_LOW}) and not ({_CALLS})"),),
    "calls": (("pytest", _EXPORTS, "-k", _CALLS),),
    "figures": (("benchmark", "attention"), ("benchmark", "output"), ("benchmark", "packages")),
}


def main() -> int:
    """Run the slice; return 1 if one of its commands failed, 130 after an interrupt."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.slices", description=__doc__)
    parser.add_argument("slice", choices=SLICES)
    parser.add_argument("--out", type=Path, default=Path("gpu-slices"), metavar="DIR")
    parser.add_argument("--seconds", type=float, default=_SECONDS, metavar="S", help=f"default: {_SECONDS:g}")
    given = parser.parse_args()
    try:
        return run_slice(given.slice, given.out, given.seconds)
    except KeyboardInterrupt:
        return 130


def run_slice(name: str, out: Path, seconds: float) -> int:
    """Run the slice's commands in turn, each within what is left of the seconds; return 1 if one failed."""
    out.mkdir(parents=True, exist_ok=True)
    until, failed = time.monotonic() + seconds, False
    for number, what in enumerate(SLICES[name], start=1):
        log = out / f"{name}-{number}.log"
        left_s = until - time.monotonic()
        begun = time.monotonic()
        ending = "not begun: no time was left"
        if left_s > _SPARE_S:
            with log.open("w") as lines:
                ending = run_guarded(command_of(what, log.with_suffix(""), left_s), limit_s=left_s, log=lines)
        failed |= bool(ending)
        took = time.monotonic() - begun
        sys.stdout.write(f"{' '.join(what)}: {ending or 'passed'} ({took:.0f} s, {log})\n{_last_line(log)}\n")
        sys.stdout.flush()
    return 1 if failed else 0


def command_of(what: Sequence[str], results: Path, left_s: float) -> Sequence[str]:
    """Return the command of a part of a slice, which writes to `results` and has so many seconds left."""
    kind, *options = what
    if kind == "benchmark":
        budget = ("--out", str(results), "--budget-seconds", f"{left_s - _SPARE_S:.0f}")
        return [sys.executable, "-u", "-m", "benchmarks.gpu", *options, *budget]
    written = f"--junitxml={results}.xml"
    return [sys.executable, "-u", "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, written]


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f"  {lines[-1]}" if lines else "  it wrote nothing"


if __name__ == "__main__":
    sys.exit(main())
