"""Times on the device, its ceilings, and tables of what was measured. Needs torch and triton alone."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from triton.testing import do_bench

ROUNDS = 5

Work = Callable[[], object]


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
    """What the device reaches on random numbers: nothing it runs is faster."""

    device: str
    torch: str
    matrix_tflops: float  # a bf16 product of matrices of 8192 x 8192
    copy_tbps: float  # bytes read and written by a copy of 2 GiB


def milliseconds(contenders: Sequence[Work]) -> list[list[float]]:
    """Of each contender the median time of a call in each round; in a round they take turns."""
    rounds = [[_median(work) for work in contenders] for _ in range(ROUNDS)]
    return [list(times) for times in zip(*rounds, strict=True)]


def ceilings() -> Ceilings:
    """Measured here and now."""
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
    """Columns as wide as what stands in them."""
    lines = [columns, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _median(work: Work) -> float:
    return float(do_bench(work, warmup=5, rep=25, return_mode="median"))
