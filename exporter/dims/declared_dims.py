"""The dim plan that a declaration amounts to. Pure data: no torch here."""

from collections.abc import Sequence

from exporter.declaration import (
    ROWS,
    DimDeclaration,
    InputDeclaration,
    TensorDeclaration,
    TowerDeclaration,
)
from exporter.dims.plan import DimPlan, DynamicDim, TensorInput


def plan_declared(declaration: TowerDeclaration, *, max_batch_size: int) -> DimPlan:
    """The inputs a declared tower takes, sorted by name as every package's are, and its dims."""
    return DimPlan(
        inputs=tuple(
            TensorInput(
                name=tensor.name,
                dtype=tensor.dtype,
                shape=tensor.shape,
                source=_source(tensor, declaration),
            )
            for tensor in sorted(declaration.inputs, key=lambda tensor: tensor.name)
        ),
        dims=_dims(declaration, declaration.inputs, max_batch_size),
    )


def plan_embedded(declaration: TowerDeclaration, *, max_batch_size: int) -> DimPlan:
    """What passes between the two packages of a declared tower."""
    tensors = sorted(declaration.embedded, key=lambda tensor: tensor.name)
    return DimPlan(
        inputs=tuple(
            TensorInput(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape) for tensor in tensors
        ),
        dims=_dims(declaration, tensors, max_batch_size),
    )


def _source(tensor: InputDeclaration, declaration: TowerDeclaration) -> str:
    """What rows fill an input with: a column's values, or the lengths of the first that it counts."""
    counted = declaration.counted_by(tensor.name)
    if counted:
        return f"{counted[0].source_column}.lengths"
    return f"{tensor.source_column}.values"


def _dims(
    declaration: TowerDeclaration, tensors: Sequence[TensorDeclaration], max_batch_size: int
) -> tuple[DynamicDim, ...]:
    """The dims that these tensors have, `batch` among them."""
    batch = DimDeclaration(name=ROWS, low=1, high=max_batch_size, reason="rows per call")
    declared = {dim.name: dim for dim in (batch, *declaration.dims)}
    return tuple(
        DynamicDim(
            name=name,
            low=declared[name].low,
            high=declared[name].high_in(max_batch_size),
            reason=_reason(declared[name], sum(tensor.dim == name for tensor in tensors)),
        )
        for name in dict.fromkeys(tensor.dim for tensor in tensors)
    )


def _reason(dim: DimDeclaration, tensors: int) -> str:
    shared = f"shared by {tensors} inputs" if tensors > 1 else "shared by no other input"
    return f"{dim.reason}, {shared}"
