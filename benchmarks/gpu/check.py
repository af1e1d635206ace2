"""Check the kernels on this machine's GPU: `python -m benchmarks.gpu.check [--seed SEED] [PART ...]`."""

import argparse
import math
import random
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.gpu.cases.attention import AttentionCase, masked_cases
from benchmarks.gpu.cases.case import Case, lengths_of, poison_allocations
from benchmarks.gpu.cases.output import output_cases
from benchmarks.gpu.cases.position import position_cases
from exporter.models.hstu.kernels.attention import AttentionForm


def main() -> int:
    """Run the cases and return 1 if one fails, which does not stop the others."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.check", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="run the cases with one of these in their names"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    failed = 0
    for line in check(given.parts, seed=given.seed):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        failed += line.startswith("FAILED")
    return 1 if failed else 0


def all_cases() -> tuple[Case, ...]:
    """Return the cases of all kernels."""
    return (*position_cases(), *output_cases(), *attention_cases())


def attention_cases() -> Iterator[Case]:
    """Yield every mask in bf16, and other dtypes and widths without a mask and with candidates."""
    usual = AttentionCase(lengths=(), heads=2, attention_dim=64, hidden_dim=64, dtype=torch.bfloat16)
    others = [
        *(replace(usual, dtype=dtype) for dtype in (torch.float32, torch.float16)),
        *(replace(usual, attention_dim=width, hidden_dim=width) for width in (16, 128, 256)),
        replace(usual, attention_dim=25, hidden_dim=40, heads=3),
    ]
    plain = [case for base in others for case in (base, replace(base, candidates=()))]
    for number, case in enumerate([*masked_cases(usual), *plain]):
        yield Case(name=f"attention-{number}-{case}", bound=case.limit, check=_AttentionCheck(case))


class _AttentionCheck:
    """Runs the operator on random rows, with candidates if the case has any."""

    def __init__(self, case: AttentionCase) -> None:
        self._case = case

    def __call__(self, chance: random.Random, /) -> float:
        lengths = tuple(lengths_of(chance, block=chance.choice([64, 128]), highest=300))
        behind = tuple(chance.choice([length, chance.randrange(length + 1)]) for length in lengths)
        candidates = None if self._case.candidates is None else behind
        return replace(self._case, lengths=lengths, candidates=candidates).error(_by_operator, "cuda")


def _by_operator(form: AttentionForm, x: Tensor, offsets: Tensor, candidates: Tensor | None) -> Tensor:
    with poison_allocations():
        return form(x, offsets, candidates)


def check(parts: Sequence[str], *, seed: int, until: float = math.inf) -> Iterator[str]:
    """Yield a line for each case whose name contains one of the parts (all without parts), then a summary.

    No case begins after `until`, on the monotonic clock, nor after a case that broke the GPU's context, which
    would make all others fail.
    """
    cases = [case for case in all_cases() if not parts or any(part in case.name for part in parts)]
    started, failed = time.monotonic(), 0
    for number, case in enumerate(cases):
        line = _line(case, seed)
        failed += line.startswith("FAILED")
        yield line
        others = len(cases) - number - 1
        if others and (why := _why_no_more(until)):
            yield f"FAILED: {why}: {others} cases were not tried"
            break
    seconds = time.monotonic() - started
    yield f"kernels, seed {seed}: {len(cases)} cases in {seconds:.0f} s, {failed} failed"


def _why_no_more(until: float) -> str:
    """Return why no further case can run, or ""."""
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return f"this process has lost the GPU ({str(error).partition(chr(10))[0]})"
    return "no time is left" if time.monotonic() > until else ""


def _line(case: Case, seed: int) -> str:
    started = time.monotonic()
    try:
        error = case.error(seed)
    except Exception:  # noqa: BLE001  a failing kernel must not stop the others
        return f"FAILED {case.name}\n{traceback.format_exc()}"
    verdict = "ok    " if error <= case.bound else "FAILED"
    return f"{verdict} {case.name}: {error:.1e} of {case.bound:.0e}, {time.monotonic() - started:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
