"""A plan's inputs and dims as a manifest and an answer of the API list them."""

from exporter.dims.plan import DimPlan
from exporter.manifest import DimEntry, TensorEntry


def tensor_entries(plan: DimPlan) -> tuple[TensorEntry, ...]:
    return tuple(
        TensorEntry(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape) for tensor in plan.inputs
    )


def dim_entries(plan: DimPlan) -> tuple[DimEntry, ...]:
    return tuple(DimEntry(name=dim.name, low=dim.low, high=dim.high, reason=dim.reason) for dim in plan.dims)
