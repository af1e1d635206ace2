"""Derive dim plans from the declaration of a custom family's tower. Pure data: no torch here."""

from collections.abc import Sequence
from dataclasses import replace

from exporter.declaration import (
    ROWS,
    DimDeclaration,
    InputDeclaration,
    TensorDeclaration,
    TowerDeclaration,
)
from exporter.dims.plan import DimPlan, DynamicDim, Share, TensorInput


def plan_declared(declaration: TowerDeclaration, *, max_batch_size: int) -> DimPlan:
    """Plan the inputs of a declared tower, sorted by name as in every package, and their dims."""
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
        dims=tuple(
            replace(dim, share=_share(dim.name, declaration))
            for dim in _dims(declaration, declaration.inputs, max_batch_size)
        ),
    )


def plan_embedded(declaration: TowerDeclaration, *, max_batch_size: int) -> DimPlan:
    """Plan the tensors that the sparse package of a declared tower passes to the dense one."""
    tensors = sorted(declaration.embedded, key=lambda tensor: tensor.name)
    return DimPlan(
        inputs=tuple(
            TensorInput(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape) for tensor in tensors
        ),
        dims=_dims(declaration, tensors, max_batch_size),
    )


def _share(name: str, declaration: TowerDeclaration) -> Share | None:
    """Return how a dim is divided among rows; None for the batch."""
    if name == ROWS:  # counted or not, a row has one element of it
        return None
    counted = next((tensor for tensor in declaration.inputs if tensor.dim == name and tensor.lengths), None)
    if counted is None or counted.lengths is None:
        return None
    dim = declaration.dim(name)
    return Share(counts="elements per row", lengths=counted.lengths, high=dim.high_per_row or dim.high)


def _source(tensor: InputDeclaration, declaration: TowerDeclaration) -> str:
    """Name the source of an input: a column's values, or the lengths of the first input that it counts."""
    counted = declaration.counted_by(tensor.name)
    if counted:
        return f"{counted[0].source_column}.lengths"
    return f"{tensor.source_column}.values"


def _dims(
    declaration: TowerDeclaration, tensors: Sequence[TensorDeclaration], max_batch_size: int
) -> tuple[DynamicDim, ...]:
    """Return the dims of these tensors, `batch` among them."""
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
