"""Plan the tensors that a tower's sparse package passes to its dense package. Pure data: no torch here."""

from exporter.config.declared_model import DeclaredConfig
from exporter.config.schema import PipelineConfig
from exporter.dims.declared_dims import plan_embedded
from exporter.dims.plan import DimPlan, plan_group_tensors


def plan_between(pipeline: PipelineConfig, *, max_batch_size: int) -> DimPlan:
    """Plan the tensors that the sparse package returns and the dense one takes, sorted by name."""
    if isinstance(pipeline.model, DeclaredConfig):
        return plan_embedded(pipeline.model.declaration, max_batch_size=max_batch_size)
    return plan_group_tensors(pipeline, max_batch_size=max_batch_size)
