"""Check the kernels on this machine's GPU: `python -m benchmarks.gpu.check [--seed SEED] [PART ...]`."""

import argparse
import random
import sys
import time
import traceback

from benchmarks.gpu.case import Case
from benchmarks.gpu.jagged_cases import jagged_cases
from benchmarks.gpu.output_cases import output_cases
from benchmarks.gpu.position_cases import position_cases


def main() -> int:
    """1 if a case fails; the others are run all the same."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.check", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="run the cases with these in their names")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    lines = check([part.lower() for part in given.parts], seed=given.seed)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if lines[-1].endswith(" 0 failed") else 1


def all_cases() -> tuple[Case, ...]:
    """Those of every kernel but attention, whose are in attention_cases.py."""
    return (*jagged_cases(), *position_cases(), *output_cases())


def check(parts: list[str], *, seed: int) -> list[str]:
    """A line for each case, and how many failed in the last."""
    cases = [case for case in all_cases() if not parts or any(part in case.name for part in parts)]
    started = time.monotonic()
    lines = [_line(case, seed) for case in cases]
    failed = sum(not line.startswith("ok") for line in lines)
    seconds = time.monotonic() - started
    return [*lines, f"kernels, seed {seed}: {len(cases)} cases in {seconds:.0f} s, {failed} failed"]


def _line(case: Case, seed: int) -> str:
    try:
        error = case.error(seed)
    except Exception:  # noqa: BLE001  whatever is wrong with one kernel, the others are to be tried
        return f"FAILED {case.name}\n{traceback.format_exc()}"
    return f"{'ok    ' if error <= case.bound else 'FAILED'} {case.name} {error:.1e} of {case.bound:.0e}"


if __name__ == "__main__":
    sys.exit(main())
