"""Random jagged rows that compare the attention operator with float64, on a CPU and on a GPU.

B rows, N elements of all rows together, W columns, H heads, A and V widths of a head's queries and values.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from benchmarks.gpu.cases.case import BOUNDS
from benchmarks.gpu.cases.references import error_of
from exporter.models.hstu.kernels.attention import AttentionForm, attention_in_torch

Attend = Callable[[AttentionForm, Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True, kw_only=True)
class MaskSettings:
    """A mask in the terms of `AttentionForm`."""

    prefix: int = 0
    window: int = 0
    sla_k1: int = 0
    sla_k2: int = 0


@dataclass(frozen=True, kw_only=True)
class AttentionCase:
    """Rows, and the mask of attention within them."""

    lengths: tuple[int, ...]
    candidates: tuple[int, ...] | None = None
    heads: int = 2
    attention_dim: int = 16
    hidden_dim: int = 16
    dtype: torch.dtype = torch.float32
    mask: MaskSettings = MaskSettings()

    def __str__(self) -> str:
        seen = {"candidates": sum(self.candidates or ()), **asdict(self.mask)}
        settings = " ".join(f"{name}={value}" for name, value in seen.items() if value) or "causal"
        kind = str(self.dtype).removeprefix("torch.")
        return f"{kind} {self.heads}x{self.attention_dim}/{self.hidden_dim} {self._rows()} {settings}"

    def _rows(self) -> str:
        return ",".join(map(str, self.lengths)) if len(self.lengths) < 8 else f"{len(self.lengths)} rows"

    @property
    def limit(self) -> float:
        return BOUNDS[self.dtype]

    def error(self, attend: Attend, device: torch.device | str = "cpu") -> float:
        """Return ||out - reference|| / ||reference|| on new random numbers; NaN if `out` contains one."""
        x_NW, offsets_B1, candidates_B = self.inputs(device)
        reference = attention_in_torch(self.form, x_NW.double(), offsets_B1, candidates_B)
        return error_of(attend(self.form, x_NW, offsets_B1, candidates_B), reference)

    def inputs(self, device: torch.device | str) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return random numbers for x, the rows' offsets, and the numbers of candidates."""
        width = 2 * (self.form.width + self.heads * self.attention_dim)
        x_NW = torch.randn(sum(self.lengths), width, device=device).to(self.dtype)
        offsets_B1 = torch.tensor([0, *self.lengths], device=device).cumsum(0)
        candidates_B = None if self.candidates is None else torch.tensor(self.candidates, device=device)
        return x_NW, offsets_B1, candidates_B

    @property
    def form(self) -> AttentionForm:
        """Return the form of attention with columns as in an STU layer: u, values, queries, keys."""
        inner, keyed = self.heads * self.hidden_dim, self.heads * self.attention_dim
        return AttentionForm(
            inner,
            2 * inner,
            2 * inner + keyed,
            self.heads,
            self.attention_dim,
            self.hidden_dim,
            alpha=self.attention_dim**-0.5,
            divisor=50.0,
            prefix=self.mask.prefix,
            window=self.mask.window,
            sla_k1=self.mask.sla_k1,
            sla_k2=self.mask.sla_k2,
        )


# Every mask, at lengths around the sizes of blocks, with and without candidates.
MASKS = (
    MaskSettings(),
    MaskSettings(prefix=1),
    MaskSettings(prefix=5),
    MaskSettings(prefix=40),  # more than some rows have
    MaskSettings(window=1),
    MaskSettings(window=20),
    MaskSettings(window=20, prefix=3),
    MaskSettings(sla_k1=20, sla_k2=3),
    MaskSettings(sla_k1=5, prefix=20),
    MaskSettings(sla_k2=40),
)


def masked_cases(base: AttentionCase) -> Iterator[AttentionCase]:
    """Yield all masks over the rows of `base`: no candidates, some, only candidates."""
    for mask in MASKS:
        yield replace(base, mask=mask)
        yield replace(base, mask=mask, candidates=tuple(length // 3 for length in base.lengths))
        yield replace(base, mask=mask, candidates=base.lengths)
