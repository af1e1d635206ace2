"""Convert a plan's inputs and dims to the entries of manifests and API responses."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from exporter.dims.plan import DimPlan, DynamicDim, Share, longest_dim
from exporter.manifest import DimEntry, ShareEntry, TensorEntry, TriedSizes


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The sizes that the gate tried: of dims, and of their shares of one row or event, by the dim's name."""

    sizes: Mapping[str, TriedSizes] = field(default_factory=dict)
    shares: Mapping[str, TriedSizes] = field(default_factory=dict)


def tensor_entries(plan: DimPlan) -> tuple[TensorEntry, ...]:
    """Return the entries of a plan's inputs."""
    return tuple(
        TensorEntry(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape) for tensor in plan.inputs
    )


def dim_entries(plan: DimPlan, tried: Tried | None = None) -> tuple[DimEntry, ...]:
    """Return the entries of a plan's dims, with the sizes that were tried, if any were."""
    return tuple(_entry(dim, tried or Tried()) for dim in plan.dims)


def tried_between(dims: Iterable[DimEntry]) -> Tried:
    """Return what was tried of the tensors between a tower's packages, from the dims of its inputs.

    Groups are padded to the longest row, whose size is the largest share of its sequence.
    """
    sizes: dict[str, TriedSizes] = {}
    for dim in dims:
        if dim.tried is not None:
            sizes[dim.name] = dim.tried
        if dim.share is not None and dim.share.tried is not None:
            sizes[longest_dim(dim.name)] = dim.share.tried
    return Tried(sizes=sizes)


def _entry(dim: DynamicDim, tried: Tried) -> DimEntry:
    return DimEntry(
        name=dim.name,
        low=dim.low,
        high=dim.high,
        reason=dim.reason,
        tried=tried.sizes.get(dim.name),
        share=_share_entry(dim.share, tried.shares.get(dim.name)) if dim.share else None,
    )


def _share_entry(share: Share, tried: TriedSizes | None) -> ShareEntry:
    refused = share.refused_above is not None
    return ShareEntry(counts=share.counts, high=share.high, tried=tried, refused=refused)
