"""Concrete sizes for a dim plan: one set to trace with, several batches to verify at. No torch here."""

from collections.abc import Iterator, Mapping, Sequence

from exporter.dims.plan import BATCH, DimPlan, DynamicDim
from exporter.errors import InvalidSpec

_BATCHES = (1, 2, 3, 7, 32)
_SMALLEST_TRACED = 5  # larger than the sizes that models compare with by name: 0, 1, a pair, a triple


def trace_sizes(plan: DimPlan) -> dict[str, int]:
    """A size for every dynamic dim: at least 2, pairwise different and unlike any fixed axis, so that
    nothing coincides by accident.

    Raises:
        InvalidSpec: the bounds are too tight for different sizes.
    """
    fixed = {axis for tensor in plan.inputs for axis in tensor.shape if isinstance(axis, int)}
    sizes: dict[str, int] = {}
    for dim in sorted(plan.dims, key=_tightness):
        taken = set(sizes.values())
        candidates = [size for size in _candidates(dim, len(plan.dims)) if size not in taken]
        if not candidates:
            raise InvalidSpec(
                f"dim {dim.name} ({dim.low} to {dim.high}) has no size of its own to trace with",
                hint="raise max_batch_size or the feature's sequence_length",
                where="max_batch_size",
            )
        sizes[dim.name] = next((size for size in candidates if size not in fixed), candidates[0])
    return {dim.name: sizes[dim.name] for dim in plan.dims}


def common_size(plan: DimPlan) -> int:
    """A size that every dim may have, unlike any fixed axis where that can be."""
    fixed = {axis for tensor in plan.inputs for axis in tensor.shape if isinstance(axis, int)}
    highest = min(
        (dim.high for dim in plan.dims if dim.high is not None), default=_SMALLEST_TRACED + len(fixed)
    )
    candidates = [*range(_SMALLEST_TRACED, highest + 1), *range(highest, 0, -1)]
    return next((size for size in candidates if size not in fixed), highest)


def verification_batch_sizes(plan: DimPlan) -> tuple[int, ...]:
    """Rows per call to verify at: small ones, sizes never traced, and the largest allowed."""
    largest = plan.dim(BATCH).high
    assert largest is not None
    return (*(size for size in _BATCHES if size < largest), largest)


def sizes_of(plan: DimPlan, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The size each dim has in these inputs, as the first input that carries it says."""
    sizes: dict[str, int] = {}
    for tensor in plan.inputs:
        for axis, size in zip(tensor.shape, shapes[tensor.name], strict=True):
            if isinstance(axis, str):
                sizes.setdefault(axis, size)
    return sizes


def _tightness(dim: DynamicDim) -> tuple[bool, int]:
    """Dims with the fewest choices choose first; among equals the batch, so that it stays small."""
    return dim.high is None, dim.high or 0


def _candidates(dim: DynamicDim, dims: int) -> Iterator[int]:
    """Primes first, because no size is then a multiple of another; whatever fits where no prime does."""
    low = max(dim.low, 2)
    last = low + 20 * (dims + 10)  # more primes than there are dims
    high = last if dim.high is None else min(dim.high, last)
    yield from (size for size in range(max(low, _SMALLEST_TRACED), high + 1) if _is_prime(size))
    yield from range(low, high + 1)


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))
