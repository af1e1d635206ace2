"""Convert a dim plan to torch.export's dims, and check traced programs against the plan."""

import sys
from collections.abc import Mapping

import torch
from torch.export import Dim, ExportedProgram

from exporter.dims.plan import DimPlan, DynamicDim, TensorInput
from exporter.errors import DimPlanViolated, DimsConflict, DimSpecialised

TorchDims = dict[str, dict[int, Dim]]


def to_torch_dims(plan: DimPlan) -> TorchDims:
    """Map each input to its axes' `Dim`s; inputs that share a planned dim share one `Dim` object."""
    dims = {dim.name: Dim(dim.name, min=dim.low, max=dim.high) for dim in plan.dims}
    return {
        tensor.name: {axis: dims[size] for axis, size in enumerate(tensor.shape) if isinstance(size, str)}
        for tensor in plan.inputs
    }


def check_program(program: ExportedProgram, plan: DimPlan) -> dict[str, str]:
    """Check the traced program's input sizes against the plan; return its symbol of each planned dim.

    Every planned dim must be one free symbol of its own with exactly the planned bounds, and every fixed
    axis must have the planned size, so that tracing specialised and shared nothing by accident.

    Raises:
        DimSpecialised: tracing narrowed a dim; names the input, the planned range and the traced one.
        DimsConflict: dims became one; names them.
        DimPlanViolated: the program takes other inputs, or lets a fixed size vary.
    """
    shapes = _input_shapes(program, plan)
    symbols: dict[str, str] = {}
    for tensor in plan.inputs:
        for axis, (planned, traced) in enumerate(zip(tensor.shape, shapes[tensor.name], strict=True)):
            where = f"{tensor.name}, axis {axis}"
            if isinstance(planned, int):
                _require(
                    not isinstance(traced, torch.SymInt) and int(traced) == planned, where, planned, traced
                )
                continue
            if not isinstance(traced, torch.SymInt) or not traced.node.expr.is_symbol:
                raise DimSpecialised(
                    f"{where}: planned as dim {planned} of {_bounds(plan.dim(planned))}, traced as {traced}",
                    hint="the model's code ties this size to a constant or to another size",
                    where=tensor.name,
                )
            _require(symbols.setdefault(planned, str(traced)) == str(traced), where, planned, traced)
            _check_bounds(program, plan.dim(planned), traced, where)
    if len(set(symbols.values())) != len(symbols):
        raise DimsConflict(
            f"dims that the plan keeps apart became one in the trace: {_merged_dims(symbols, plan)}",
            hint="the model's code requires these sizes to be equal: write the features in one "
            "sequence_feature",
        )
    return symbols


def _input_shapes(program: ExportedProgram, plan: DimPlan) -> Mapping[str, torch.Size]:
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    names = program.graph_signature.user_inputs
    if len(names) != len(plan.inputs):
        raise DimPlanViolated(f"the program takes {len(names)} inputs, the plan has {len(plan.inputs)}")
    return {
        tensor.name: placeholders[str(name)].meta["val"].shape
        for tensor, name in zip(plan.inputs, names, strict=True)
    }


def _check_bounds(program: ExportedProgram, dim: DynamicDim, traced: torch.SymInt, where: str) -> None:
    bounds = program.range_constraints[traced.node.expr]
    # Unbounded is torch's own integer infinity, which is no Python int but compares with one.
    high_agrees = bounds.upper == dim.high if dim.high is not None else bounds.upper > sys.maxsize
    if bounds.lower != dim.low or not high_agrees:
        raise DimSpecialised(
            f"{where}: dim {dim.name} is planned for {_bounds(dim)}, "
            f"the trace allows {bounds.lower} to {bounds.upper}",
            hint="the model's code narrows this size",
            where=where.partition(",")[0],
        )


def _bounds(dim: DynamicDim) -> str:
    return f"{dim.low} or more" if dim.high is None else f"{dim.low} to {dim.high}"


def _merged_dims(symbols: Mapping[str, str], plan: DimPlan) -> str:
    """List the dims that became one symbol, each with an input that has it."""
    of_symbol: dict[str, list[str]] = {}
    for dim, symbol in symbols.items():
        of_symbol.setdefault(symbol, []).append(f"{dim} ({plan.inputs_of(dim)[0].name})")
    return "; ".join(" and ".join(dims) for dims in of_symbol.values() if len(dims) > 1)


def _require(holds: bool, where: str, planned: int | str, traced: object) -> None:
    if not holds:
        raise DimPlanViolated(f"{where}: planned as {planned!r}, traced as {traced}", where=where)


def input_sizes(plan: DimPlan, inputs: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Return the size of each dynamic dim in `inputs`.

    Raises:
        DimPlanViolated: an input has an unplanned rank or fixed size, or two inputs disagree on a dim.
    """
    sizes: dict[str, int] = {}
    for tensor in plan.inputs:
        shape = tuple(inputs[tensor.name].shape)
        if len(shape) != len(tensor.shape):
            raise _wrong_shape(tensor, shape)
        for planned, size in zip(tensor.shape, shape, strict=True):
            expected = planned if isinstance(planned, int) else sizes.setdefault(planned, size)
            if expected != size:
                raise _wrong_shape(tensor, shape)
    return sizes


def _wrong_shape(tensor: TensorInput, shape: tuple[int, ...]) -> DimPlanViolated:
    return DimPlanViolated(
        f"{tensor.name} has shape {shape}, the plan says {tensor.shape}", where=tensor.name
    )
