"""Convert a plan's inputs and dims to the entries of manifests and API responses."""

from exporter.dims.plan import DimPlan
from exporter.manifest import DimEntry, TensorEntry


def tensor_entries(plan: DimPlan) -> tuple[TensorEntry, ...]:
    return tuple(
        TensorEntry(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape) for tensor in plan.inputs
    )


def dim_entries(plan: DimPlan) -> tuple[DimEntry, ...]:
    return tuple(DimEntry(name=dim.name, low=dim.low, high=dim.high, reason=dim.reason) for dim in plan.dims)
