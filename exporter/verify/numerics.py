"""Numerical comparison of two sets of outputs, and the differences that are allowed."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from exporter.config.build_options import BuildOptions
from exporter.dtypes import Precision
from exporter.spec import LowPrecision, Pass, SetPrecision

# fp32: rounding differs between eager's and the compiler's order of summation, not more.
FP32_TOLERANCE = 1e-5
# Lower precisions: five units in the last place of what was computed in them, eager being fp32 all along. The
# models of tests/board differ by 1.6 of them at most.
_LOW_TOLERANCES = {LowPrecision.FP16: 2.5e-3, LowPrecision.BF16: 2e-2}
# A whole tower under autocast: ten such units, as eager rounds after every operator, and the package once
# after several. The recorded models differ by four at most.
_AUTOCAST_TOLERANCES = {Precision.FP32: FP32_TOLERANCE, Precision.FP16: 5e-3, Precision.BF16: 4e-2}
_TF32_TOLERANCE = 5e-3  # its factors have as many bits as fp16's


def choose_tolerance(passes: Iterable[Pass], options: BuildOptions) -> float:
    """Return the allowed difference of a package from eager, as a fraction of the output's scale.

    Eager has the same tables, quantised or not, and computes in the same precision, except for passes. The
    loss of precision by tables and arithmetic is judged by another check, against the model in fp32.
    """
    low = [_LOW_TOLERANCES[each.precision] for each in passes if isinstance(each, SetPrecision)]
    return max(*low, _AUTOCAST_TOLERANCES[options.precision], _TF32_TOLERANCE if options.tf32 else 0.0)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The worst output of a comparison; `problem` says why it fails where numbers do not."""

    output: str | None
    largest: float  # absolute
    scale: float  # largest magnitude of the reference output, here or as it usually is
    problem: str = ""

    def within(self, tolerance: float) -> bool:
        """Return whether it is at most `tolerance` of the output's scale; outputs of zero must be zero."""
        return not self.problem and self.largest <= tolerance * self.scale

    @property
    def relative(self) -> float:
        if self.largest == 0:
            return 0.0
        return self.largest / self.scale if self.scale else math.inf


def measure_scales(outputs: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the largest magnitude of each output."""
    return {name: _largest(tensor) for name, tensor in outputs.items()}


def compare(
    reference: Mapping[str, Tensor], actual: Mapping[str, Tensor], *, usual: Mapping[str, float] | None = None
) -> Difference:
    """Return the worst elementwise difference over all outputs; a non-finite number never passes.

    Integers must be equal, whatever the tolerance.

    `usual` are scales that replace an output's own scale where that is smaller: a single logit may happen
    to be a small difference of large numbers, and is rounded as these are.
    """
    if set(reference) != set(actual):
        return _problem(None, f"outputs are {sorted(actual)}, expected {sorted(reference)}")
    usual = usual or {}
    differences = [_compare(name, reference[name], actual[name], usual.get(name, 0.0)) for name in reference]
    return max(differences, key=lambda difference: (bool(difference.problem), difference.relative))


def allowed_differences(
    reference: Mapping[str, Tensor], tolerance: float, *, usual: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return the largest absolute difference of each output that `compare` and the tolerance allow."""
    usual = usual or {}
    return {
        name: tolerance * max(_largest(tensor), usual.get(name, 0.0)) if tensor.is_floating_point() else 0.0
        for name, tensor in reference.items()
    }


def compare_runs(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> Difference:
    """Return the worst difference between two runs; the same NaN or infinity in both is no difference."""
    if set(first) != set(second) or any(first[name].shape != second[name].shape for name in first):
        return compare(first, second)
    same = {name: _same_and_not_finite(first[name], second[name]) for name in first}
    return compare(
        *({name: each[name].masked_fill(same[name], 0) for name in each} for each in (first, second))
    )


def _same_and_not_finite(first: Tensor, second: Tensor) -> Tensor:
    return (first.isnan() & second.isnan()) | (first.isinf() & (first == second))


def _compare(name: str, reference: Tensor, actual: Tensor, usual: float) -> Difference:
    if reference.shape != actual.shape or reference.dtype != actual.dtype:
        return _problem(
            name,
            f"{actual.dtype} {tuple(actual.shape)}, expected {reference.dtype} {tuple(reference.shape)}",
        )
    if reference.numel() == 0:
        return Difference(output=name, largest=0.0, scale=0.0)
    if not reference.is_floating_point():
        return _compare_integers(name, reference, actual)
    wide, other = reference.double(), actual.double()
    if not bool(wide.isfinite().all() and other.isfinite().all()):
        return _problem(name, "holds NaN or infinity")
    largest = float((wide - other).abs().max())
    return Difference(output=name, largest=largest, scale=max(_largest(wide), usual))


def _compare_integers(name: str, reference: Tensor, actual: Tensor) -> Difference:
    """Compare exactly: an id or a count beside the right one is as wrong as any other."""
    wrong = int((reference != actual).sum())
    if wrong:
        return _problem(name, f"{wrong} of {reference.numel()} integers differ")
    return Difference(output=name, largest=0.0, scale=_largest(reference))


def find_not_finite(outputs: Mapping[str, Tensor]) -> str:
    """Return which output holds NaN or infinity, in words; empty if none does."""
    found = (name for name, tensor in outputs.items() if not bool(tensor.isfinite().all()))
    return "".join(f"{name} holds NaN or infinity" for name in islice(found, 1))


def _largest(tensor: Tensor) -> float:
    return float(tensor.double().abs().max()) if tensor.numel() else 0.0


def _problem(name: str | None, problem: str) -> Difference:
    return Difference(output=name, largest=math.inf, scale=0.0, problem=problem)
