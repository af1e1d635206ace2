"""Trace a tower to a program that follows the dim plan, or raise an error that says why it cannot."""

import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.dims.torch_dims import check_program
from exporter.errors import DimPlanViolated
from exporter.stages import Progress, no_progress, throttle_progress
from exporter.towers.tower import Tower
from exporter.trace.capture import capture_tower
from exporter.trace.untraceable import explain_failure


def trace_tower(
    tower: Tower,
    inputs: dict[str, Tensor],
    device: torch.device,
    progress: Progress = no_progress,
    *,
    preserved: tuple[str, ...] = (),
) -> ExportedProgram:
    """Export `tower` on `inputs`, whose dynamic sizes are at least 2 and pairwise different.

    Raises:
        DimsConflict: the model requires two sizes to be equal that are different dims in the plan.
        DimSpecialised: a size that is dynamic in the plan was narrowed or fixed.
        OutOfMemory: computing the model on the inputs while tracing ran out of memory.
        TraceFailed: torch.export could not capture the tower.
    """
    ordered = {tensor.name: inputs[tensor.name].to(device) for tensor in tower.plan.inputs}
    try:
        program = capture_tower(tower, ordered, throttle_progress(progress), preserved=preserved)
    except Exception as error:  # torch.export raises many unrelated types
        raise as_out_of_memory(error, f"{tower.title}: tracing") or explain_failure(
            tower, ordered, error
        ) from error
    try:
        check_program(program, tower.plan)
    except DimPlanViolated as error:
        raise type(error)(f"{tower.title}: {error.message}", hint=error.hint, where=error.where) from error
    return program
