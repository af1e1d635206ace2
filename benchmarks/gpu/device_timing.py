"""Timing on a GPU, the GPU's ceilings, and tables of results; needs only torch and triton."""

import statistics
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from triton.testing import do_bench

ROUNDS = 5

Work = Callable[[], object]
C = TypeVar("C")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure measured in several rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(median=statistics.median(values), low=min(values), high=max(values))


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """The rates that the device reaches on random numbers; nothing on it can be faster."""

    device: str
    torch: str
    matrix_tflops: float  # a bf16 product of matrices of 8192 x 8192
    copy_tbps: float  # bytes read and written by a copy of 2 GiB


def milliseconds(contenders: Sequence[Work]) -> list[list[float]]:
    """Return, per contender, the median time of a call in each round; in a round contenders alternate."""
    rounds = [[_median(work) for work in contenders] for _ in range(ROUNDS)]
    return [list(times) for times in zip(*rounds, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A figure that could not be measured, with the reason."""

    case: str
    why: str  # a traceback, if it raised

    def __str__(self) -> str:
        began = "FAILED" if self.why.startswith("Traceback") else "left out"
        return f"{began}: {self.case}: {self.why.strip().rpartition(chr(10))[2][:300]}"


def of_each(
    cases: Iterable[C], measure: Callable[[C], T], left_s: Callable[[], float]
) -> Iterator[T | Missing]:
    """Measure each case; a case that raises, or has no time left, yields `Missing`."""
    for case in cases:
        try:
            yield measure(case) if left_s() > 0 else Missing(case=str(case), why="no time was left")
        except Exception:  # noqa: BLE001  a failing case must not stop the others
            yield Missing(case=str(case), why=traceback.format_exc())
        torch.cuda.empty_cache()


def failure_of(work: Work) -> str:
    """Make the first call, which compiles, and return its error as text, or ""."""
    try:
        work()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  a failing contender is left out
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
    return ""


def ceilings() -> Ceilings:
    """Measure the ceilings of the current device."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    product_ms, copy_ms = (
        statistics.median(each) for each in milliseconds([lambda: a @ b, lambda: target.copy_(source)])
    )
    return Ceilings(
        device=torch.cuda.get_device_name(),
        torch=torch.__version__,
        matrix_tflops=2 * 8192**3 / product_ms / 1e9,
        copy_tbps=2 * source.nbytes / copy_ms / 1e9,
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table whose columns are as wide as their contents."""
    lines = [columns, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _median(work: Work) -> float:
    return float(do_bench(work, warmup=5, rep=25, return_mode="median"))
