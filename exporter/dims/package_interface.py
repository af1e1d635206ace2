"""Plan the tensors that a tower's sparse package passes to its dense package. Pure data: no torch here."""

from collections.abc import Iterable
from dataclasses import replace

from exporter.config.declared_model import DeclaredConfig
from exporter.config.schema import PipelineConfig
from exporter.dims.declared_dims import plan_embedded
from exporter.dims.plan import DimPlan, longest_dim, plan_group_tensors
from exporter.manifest import DimEntry


def plan_between(pipeline: PipelineConfig, *, max_batch_size: int) -> DimPlan:
    """Plan the tensors that the sparse package returns and the dense one takes, sorted by name."""
    if isinstance(pipeline.model, DeclaredConfig):
        return plan_embedded(pipeline.model.declaration, max_batch_size=max_batch_size)
    return plan_group_tensors(pipeline, max_batch_size=max_batch_size)


def bound_between(between: DimPlan, inputs: DimPlan) -> DimPlan:
    """Return the plan between packages with the bounds of a tower's inputs, where rows have limits."""
    if not inputs.row_limits:
        return between
    highs = {dim.name: dim.high for dim in inputs.dims}
    longest = {longest_dim(dim.name): dim.share.refused_above for dim in inputs.dims if dim.share}
    return _lower_highs(between, {**highs, **longest})


def bound_as_published(between: DimPlan, inputs: Iterable[DimEntry]) -> DimPlan:
    """Return the plan between packages as `bound_between` does, from a manifest's dims of the inputs."""
    strict = [dim for dim in inputs if dim.share and dim.share.refused and dim.share.tried]
    if not strict:
        return between
    longest = {
        longest_dim(dim.name): dim.share.tried.largest for dim in strict if dim.share and dim.share.tried
    }
    return _lower_highs(between, {**{dim.name: dim.high for dim in strict}, **longest})


def _lower_highs(plan: DimPlan, highs: dict[str, int | None]) -> DimPlan:
    # A group is padded to two events at least.
    lowered = (
        dim if (high := highs.get(dim.name)) is None else replace(dim, high=max(high, 2)) for dim in plan.dims
    )
    return replace(plan, dims=tuple(lowered))
