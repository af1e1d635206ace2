"""How far two sets of outputs are apart, and whether that is close enough."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

# fp32: rounding differs between eager's and the compiler's order of summation, not more.
FP32_TOLERANCE = 1e-5


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The worst output of a comparison; `problem` says why it fails where numbers do not."""

    output: str | None
    largest: float  # absolute
    scale: float  # largest magnitude of the reference output
    problem: str = ""

    def within(self, tolerance: float) -> bool:
        """Whether it is at most `tolerance` of the output's scale; outputs of zero must be zero."""
        return not self.problem and self.largest <= tolerance * self.scale

    @property
    def relative(self) -> float:
        if self.largest == 0:
            return 0.0
        return self.largest / self.scale if self.scale else math.inf


def compare(reference: Mapping[str, Tensor], actual: Mapping[str, Tensor]) -> Difference:
    """The worst difference over all outputs, elementwise; a non-finite number never passes."""
    if set(reference) != set(actual):
        return _problem(None, f"outputs are {sorted(actual)}, expected {sorted(reference)}")
    differences = [_compare(name, reference[name], actual[name]) for name in reference]
    return max(differences, key=lambda difference: (bool(difference.problem), difference.relative))


def _compare(name: str, reference: Tensor, actual: Tensor) -> Difference:
    if reference.shape != actual.shape or reference.dtype != actual.dtype:
        return _problem(
            name,
            f"{actual.dtype} {tuple(actual.shape)}, expected {reference.dtype} {tuple(reference.shape)}",
        )
    if reference.numel() == 0:
        return Difference(output=name, largest=0.0, scale=0.0)
    wide, other = reference.double(), actual.double()
    if not bool(wide.isfinite().all() and other.isfinite().all()):
        return _problem(name, "holds NaN or infinity")
    return Difference(output=name, largest=float((wide - other).abs().max()), scale=float(wide.abs().max()))


def _problem(name: str | None, problem: str) -> Difference:
    return Difference(output=name, largest=math.inf, scale=0.0, problem=problem)
