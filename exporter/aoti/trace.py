"""A tower becomes a program: torch.export under the dim plan."""

import warnings

import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.aoti.torch_private import sizes_zero_and_one_stay_dynamic
from exporter.dims.torch_dims import check_program, to_torch_dims
from exporter.errors import DimPlanViolated, TraceFailed
from exporter.towers.tower import Tower


def trace(tower: Tower, inputs: dict[str, Tensor], device: torch.device) -> ExportedProgram:
    """Export `tower` on `inputs`, whose dynamic sizes are at least 2 and pairwise different.

    Raises:
        DimPlanViolated: the program's sizes are not those of the plan.
        TraceFailed: torch.export could not capture the tower.
    """
    ordered = {tensor.name: inputs[tensor.name].to(device) for tensor in tower.plan.inputs}
    try:
        with torch.no_grad(), sizes_zero_and_one_stay_dynamic(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch and fbgemm about each other; failures raise
            program = torch.export.export(
                tower.module, (ordered,), dynamic_shapes=(to_torch_dims(tower.plan),), strict=False
            )
    except Exception as error:  # torch.export raises many unrelated types; all mean the same here
        raise _explain(tower, error) from error
    check_program(program, tower.plan)
    return program


def _explain(tower: Tower, error: Exception) -> TraceFailed | DimPlanViolated:
    text = str(error).strip()
    if "Constraints violated" in text or "specialized it to be a constant" in text:
        return DimPlanViolated(
            f"{tower.name} tower: torch.export found sizes that contradict the plan: {text[:2000]}",
            hint="inputs that the model combines elementwise must belong to one parent sequence",
        )
    return TraceFailed(f"{tower.name} tower: {type(error).__name__}: {text[:2000]}")
