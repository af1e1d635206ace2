"""Choose concrete sizes for a dim plan: one set for tracing, several batches to verify. No torch here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from exporter.dims.plan import BATCH, DimPlan, DynamicDim
from exporter.errors import InvalidSpec

_BATCHES = (1, 2, 3, 7, 32)
_SMALLEST_BATCHES = (2, 31, 127)  # in rows, to trace with; the first that leaves a size for every dim
_SMALLEST_TRACED = 5  # larger than the sizes that code of models compares with: 0 to 3


def trace_sizes(plan: DimPlan) -> dict[str, int]:
    """Return a size for every dynamic dim, of at least 2.

    The sizes differ from each other and, if possible, from every fixed axis, so that no two are equal by
    accident.

    Raises:
        InvalidSpec: the bounds are too tight for different sizes.
    """
    *tries, last = _SMALLEST_BATCHES if plan.row_limits else _SMALLEST_BATCHES[:1]
    for smallest_batch in tries:
        try:
            return _choose_sizes(plan, smallest_batch)
        except InvalidSpec:  # there is more room in larger batches, if rows may hold little
            continue
    return _choose_sizes(plan, last)


def _choose_sizes(plan: DimPlan, smallest_batch: int) -> dict[str, int]:
    fixed = {axis for tensor in plan.inputs for axis in tensor.shape if isinstance(axis, int)}
    sizes: dict[str, int] = {}
    for dim in sorted(plan.dims, key=lambda dim: (*_depth(dim, plan), *_tightness(dim))):
        taken = set(sizes.values())
        bounded = _bound_by_rows(dim, plan, sizes)
        if dim.name == BATCH:
            bounded = replace(bounded, low=max(dim.low, min(smallest_batch, dim.high or smallest_batch)))
        candidates = [size for size in _candidates(bounded, len(plan.dims)) if size not in taken]
        if not candidates:
            raise InvalidSpec(
                f"dim {dim.name} ({dim.low} to {dim.high}) has no size of its own to trace with",
                hint="raise max_batch_size or the feature's sequence_length",
                where="max_batch_size",
            )
        sizes[dim.name] = next((size for size in candidates if size not in fixed), candidates[0])
    return {dim.name: sizes[dim.name] for dim in plan.dims}


def _depth(dim: DynamicDim, plan: DimPlan) -> tuple[int, ...]:
    """Sort key where rows have limits: the batch, then what is divided among rows, then among events."""
    if not plan.row_limits:
        return ()
    parent = plan.parent(dim)
    return (0 if parent is None else 1 if parent == BATCH else 2,)


def _bound_by_rows(dim: DynamicDim, plan: DimPlan, sizes: Mapping[str, int]) -> DynamicDim:
    """Return the dim without sizes that would need rows, or events, that are refused."""
    parent = plan.parent(dim)
    if parent is None or dim.share is None or dim.share.refused_above is None:
        return dim
    most = dim.share.refused_above * sizes[parent]
    return replace(dim, high=most if dim.high is None else min(most, dim.high))


def common_size(plan: DimPlan) -> int:
    """Return a size that every dim may have, different from all fixed axes if possible."""
    fixed = {axis for tensor in plan.inputs for axis in tensor.shape if isinstance(axis, int)}
    highest = min(
        (dim.high for dim in plan.dims if dim.high is not None), default=_SMALLEST_TRACED + len(fixed)
    )
    candidates = [*range(_SMALLEST_TRACED, highest + 1), *range(highest, 0, -1)]
    return next((size for size in candidates if size not in fixed), highest)


def verification_batch_sizes(plan: DimPlan) -> tuple[int, ...]:
    """Return the batch sizes to verify, in rows: small ones, sizes never traced, and the largest allowed."""
    largest = plan.dim(BATCH).high
    assert largest is not None
    return (*(size for size in _BATCHES if size < largest), largest)


def sizes_of(plan: DimPlan, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the size of each dim in inputs of these shapes, taken from the first input that has it."""
    sizes: dict[str, int] = {}
    for tensor in plan.inputs:
        for axis, size in zip(tensor.shape, shapes[tensor.name], strict=True):
            if isinstance(axis, str):
                sizes.setdefault(axis, size)
    return sizes


def _tightness(dim: DynamicDim) -> tuple[bool, int]:
    """Sort key: dims with the fewest allowed sizes choose first; among equals the batch, to stay small."""
    return dim.high is None, dim.high or 0


def _candidates(dim: DynamicDim, dims: int) -> Iterator[int]:
    """Yield allowed sizes, primes first, because no prime is a multiple of another."""
    low = max(dim.low, 2)
    last = low + 20 * (dims + 10)  # more primes than there are dims
    high = last if dim.high is None else min(dim.high, last)
    yield from (size for size in range(max(low, _SMALLEST_TRACED), high + 1) if _is_prime(size))
    yield from range(low, high + 1)


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))
