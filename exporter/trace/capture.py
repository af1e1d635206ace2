"""Call torch.export under a dim plan; `untraceable` explains the errors that it raises."""

import warnings

import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.aoti.torch_private import observe_nodes, sizes_zero_and_one_stay_dynamic
from exporter.dims.torch_dims import to_torch_dims
from exporter.stages import Progress, no_progress
from exporter.towers.tower import Tower


def capture_tower(
    tower: Tower,
    inputs: dict[str, Tensor],
    progress: Progress = no_progress,
    *,
    preserved: tuple[str, ...] = (),
) -> ExportedProgram:
    """Trace the tower on `inputs`, which are in the plan's order.

    The submodules named in `preserved` keep their call signature in the program.
    """
    with (
        torch.no_grad(),
        sizes_zero_and_one_stay_dynamic(),
        observe_nodes(lambda nodes, _: progress(None, f"{nodes:,} node{'' if nodes == 1 else 's'} traced")),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # warnings of torch and fbgemm about each other; failures raise
        return torch.export.export(
            tower.module,
            (inputs,),
            dynamic_shapes=(to_torch_dims(tower.plan),),
            strict=False,
            preserve_module_call_signature=preserved,
        )
