"""Measure the attention kernel against eager PyTorch, `torch.compile` and the device's ceilings.

About 65,536 elements in rows of one length, or of many lengths; four heads, bf16. The two others pad rows to
the longest, as a model without the kernel does; their mask is made before the clock starts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu.cases.attention import AttentionCase
from benchmarks.gpu.device_timing import Ceilings, Missing, Spread, failure_of, milliseconds, of_each, table
from exporter.models.hstu.kernels.attention import AttentionForm, visible

ELEMENTS = 65_536
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
_COMPILED = 128  # `torch.compile` is measured at this width of heads only


@dataclass(frozen=True, kw_only=True)
class AttentionFigures:
    """Figures of one case: milliseconds, and ratios of the rounds."""

    case: str
    width: int
    kernel_ms: Spread
    tflops: float  # of the products that the mask leaves, from the median time
    of_matrix_rate: float
    eager_over_kernel: Spread | None
    compiled_over_kernel: Spread | None
    failed: dict[str, str]  # errors by contender


def lengths_of(kind: str) -> tuple[int, ...]:
    """Return row lengths: all equal ("2048"), "uniform 4096", or "skewed 8192" (most are short)."""
    if kind.isdigit():
        return (int(kind),) * (ELEMENTS // int(kind))
    name, longest = kind.split()
    drawn = torch.rand(ELEMENTS, generator=torch.Generator().manual_seed(7))
    shares = drawn if name == "uniform" else drawn**4
    lengths = (shares * int(longest)).int().clamp(min=1)
    fitting = int((lengths.cumsum(0) <= ELEMENTS).sum())
    return tuple(lengths[:fitting].tolist())


def measure(
    ceilings: Ceilings, left_s: Callable[[], float], *, compiled: bool = True
) -> Iterator[AttentionFigures | Missing]:
    """Measure every length and both distributions at two widths of heads, and three more widths at 2,048."""
    kinds = [*map(str, LENGTHS), "uniform 4096", "skewed 8192"]
    cases = [(kind, width) for width in (128, 64) for kind in kinds]
    cases += [("2048", width) for width in (16, 32, 256)]
    yield from of_each(cases, partial(_measure_case, ceilings=ceilings, compiled=compiled), left_s)


def format_figures(found: Sequence[AttentionFigures | Missing]) -> str:
    """Format the figures as a table, followed by the cases that are missing."""
    figures = [each for each in found if isinstance(each, AttentionFigures)]
    missing = [str(each) for each in found if isinstance(each, Missing)]
    failed = [
        f"{each.case} {each.width}: {name} failed: {why}"
        for each in figures
        for name, why in each.failed.items()
    ]

    def ratio(spread: Spread | None) -> str:
        return f"{spread.median:.1f} ({spread.low:.1f}-{spread.high:.1f})" if spread else "-"

    shown = table(
        ("rows", "width", "kernel ms", "TFLOP/s", "of matrix rate", "eager / kernel", "compiled / kernel"),
        [
            (
                each.case,
                str(each.width),
                f"{each.kernel_ms.median:.3f}",
                f"{each.tflops:.0f}",
                f"{each.of_matrix_rate:.2f}",
                ratio(each.eager_over_kernel),
                ratio(each.compiled_over_kernel),
            )
            for each in figures
        ],
    )
    return "\n".join([shown, *missing, *failed])


def _measure_case(of: tuple[str, int], *, ceilings: Ceilings, compiled: bool) -> AttentionFigures:
    kind, width = of
    case = AttentionCase(
        lengths=lengths_of(kind), heads=4, attention_dim=width, hidden_dim=width, dtype=torch.bfloat16
    )
    x_NW, offsets_B1, candidates_B = case.inputs("cuda")
    padded = Padded(case.form, case.lengths, x_NW)
    others: dict[str, Callable[[], object]] = {"eager": padded}
    if compiled and width == _COMPILED:
        torch.compiler.reset()
        fast = torch.compile(padded.attend, dynamic=False)
        others["compiled"] = lambda: fast(*padded.inputs)
    failed = {name: why for name, other in others.items() if (why := failure_of(other))}
    running = {name: other for name, other in others.items() if name not in failed}
    times = milliseconds([lambda: case.form(x_NW, offsets_B1, candidates_B), *running.values()])
    pairs = sum(length * (length + 1) / 2 for length in case.lengths)
    kernel_ms = Spread.of(times[0])
    tflops = pairs * 4 * width * case.heads / kernel_ms.median / 1e9
    over = {
        name: Spread.of([a / b for a, b in zip(other, times[0], strict=True)])
        for name, other in zip(running, times[1:], strict=True)
    }
    return AttentionFigures(
        case=kind,
        width=width,
        kernel_ms=kernel_ms,
        tflops=tflops,
        of_matrix_rate=tflops / ceilings.matrix_tflops,
        eager_over_kernel=over.get("eager"),
        compiled_over_kernel=over.get("compiled"),
        failed=failed,
    )


class Padded:
    """Attention in eager PyTorch: rows are padded, all heads go in one product with a mask, then unpadded."""

    def __init__(self, form: AttentionForm, lengths: tuple[int, ...], x_NW: Tensor) -> None:
        self._form = form
        self._longest = max(lengths)
        mask_LL = visible(form, self._longest, None).to(x_NW.device)
        places = torch.arange(self._longest).expand(len(lengths), -1)
        is_kept_BL = places < torch.tensor(lengths).unsqueeze(1)
        at_N = is_kept_BL.flatten().nonzero().squeeze(1).to(x_NW.device)
        self._rows = len(lengths)
        self.inputs = (x_NW, at_N, mask_LL)

    def __call__(self) -> Tensor:
        return self.attend(*self.inputs)

    def attend(self, x_NW: Tensor, at_N: Tensor, mask_LL: Tensor) -> Tensor:
        """Attend over jagged rows: (N, W) to (N, H * V)."""
        form = self._form
        empty = x_NW.new_zeros(self._rows * self._longest, x_NW.shape[1])
        padded_BLW = empty.index_copy(0, at_N, x_NW).unflatten(0, (self._rows, self._longest))
        v, q, k = (
            padded_BLW[:, :, column : column + form.heads * width]
            .unflatten(2, (form.heads, width))
            .transpose(1, 2)
            for column, width in (
                (form.v_column, form.hidden_dim),
                (form.q_column, form.attention_dim),
                (form.k_column, form.attention_dim),
            )
        )
        weights = F.silu(q @ k.transpose(2, 3) * form.alpha) / form.divisor * mask_LL
        attended_BLE: Tensor = (weights @ v).transpose(1, 2).flatten(2)
        return attended_BLE.flatten(0, 1)[at_N]


def to_json(figures: Sequence[AttentionFigures | Missing]) -> list[dict[str, object]]:
    """Return the figures as JSON values."""
    return [asdict(each) for each in figures]
