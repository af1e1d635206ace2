"""One part of the GPU benchmark in its own process: `python -m benchmarks.gpu.part_process NAME OUT SECONDS`.

Results are written while the part runs: figures to gpu.json below OUT, and the part's table to NAME.txt.
"""

import importlib.util
import json
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.gpu import attention, output
from benchmarks.gpu.check import check
from benchmarks.gpu.device_timing import Ceilings, ceilings
from processes.interrupts import interrupt_on_end_signals

_NEEDED_FOR_PACKAGES = ("fbgemm_gpu", "torchrec", "pyarrow", "pydantic")


class Run:
    """A running part: where it writes, and until when it may begin new work."""

    def __init__(self, out: Path, budget_s: float) -> None:
        self.out = out
        self._until = time.monotonic() + budget_s
        self._kept = out / "gpu.json"

    @property
    def left_s(self) -> float:
        return self._until - time.monotonic()

    def ceilings(self) -> Ceilings:
        """Return the device's ceilings, which the first part that needs them measures."""
        if "ceilings" in (known := self.read_figures()):
            return Ceilings(**known["ceilings"])  # type: ignore[arg-type]  # as written below
        found = ceilings()
        self.keep("ceilings", asdict(found))
        return found

    def read_figures(self) -> dict[str, dict[str, str | float]]:
        """Return the figures of this and earlier parts."""
        read: dict[str, dict[str, str | float]] = (
            json.loads(self._kept.read_text()) if self._kept.exists() else {}
        )
        return read

    def keep(self, name: str, figures: object) -> None:
        """Add figures to gpu.json, which is replaced as a whole."""
        anew = self._kept.with_suffix(".new")
        anew.write_text(json.dumps({**self.read_figures(), name: figures}, indent=1) + "\n")
        anew.replace(self._kept)


def main() -> int:
    """Run one part; return 1 if a case of it failed. If it raises, its table ends with the traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the guard ends on a Ctrl-C and sends another signal
    interrupt_on_end_signals()
    name, out, budget_s = sys.argv[1:]
    run, is_well = Run(Path(out), float(budget_s)), True
    with (run.out / f"{name}.txt").open("w", buffering=1) as table:
        try:
            for line in PARTS[name](run):
                is_well &= "FAILED" not in line
                table.write(f"{line}\n")
        except BaseException:
            table.write(f"FAILED: {traceback.format_exc()}\n")
            raise
    return 0 if is_well else 1


def _check(run: Run) -> Iterator[str]:
    seed, lines = secrets.randbits(32), list[str]()
    for line in check([], seed=seed, until=time.monotonic() + run.left_s):
        lines.append(line)
        run.keep("check", lines)
        if line.startswith("FAILED"):
            yield line
    yield lines[-1]


def _attention(run: Run) -> Iterator[str]:
    most = run.ceilings()
    yield f"{most.device}: {most.matrix_tflops:.0f} TFLOP/s, {most.copy_tbps:.2f} TB/s"
    figures = []
    try:
        for figure in attention.measure(most, lambda: run.left_s):
            figures.append(figure)
            run.keep("attention", attention.to_json(figures))
    finally:  # also if an error or a signal ends the part
        yield attention.format_figures(figures)


def _output(run: Run) -> Iterator[str]:
    most, figures = run.ceilings(), []
    try:
        for figure in output.measure(most, lambda: run.left_s):
            figures.append(figure)
            run.keep("output", output.to_json(figures))
    finally:
        yield output.format_figures(figures)


def _packages(run: Run) -> Iterator[str]:
    missing = [name for name in _NEEDED_FOR_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        yield f"left out: there is no {', '.join(missing)} here"
        return
    from benchmarks.gpu import packages

    yield from packages.measure(run.out, run.left_s)


Part = Callable[[Run], Iterator[str]]  # yields the lines of its table
PARTS: dict[str, Part] = {
    "check": _check,
    "attention": _attention,
    "output": _output,
    "packages": _packages,
}

if __name__ == "__main__":
    sys.exit(main())
