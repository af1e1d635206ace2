"""Opening a planned tower, the first half of an export: build it, load weights, read rows to try it on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from exporter.aoti.architecture import require_target, require_torch
from exporter.attempt.attempt import Diagnostics
from exporter.construction.blueprint import Blueprint, FilledModule
from exporter.construction.open_blueprint import open_blueprint
from exporter.construction.sources import fetch_checkpoint_once, open_rows
from exporter.data.batch import trace_inputs
from exporter.data.rows import Rows
from exporter.items.plan import Items, open_items
from exporter.lowering.lower_tower import LoweredTower, lower_tower
from exporter.manifest import InferredOp, SourceRef
from exporter.models.embedding.table_uses import known_ids
from exporter.spec import ExportSpec
from exporter.stages import Stage, StageClock
from exporter.towers.plan import TowerToExport
from exporter.towers.tower import Tower
from exporter.trace.shape_rules import infer_shape_rules
from exporter.verify.cases import bound_by_tried


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenedTower:
    """A tower with its weights on its device, rows to try it on, and the sources of both."""

    blueprint: Blueprint
    filled: FilledModule
    lowered: LoweredTower
    rows: Rows
    inputs: dict[str, Tensor]  # to trace it on
    items: Items | None  # every item of the input, where their vectors are wanted
    device: torch.device
    sources: tuple[SourceRef, ...]  # the checkpoint, and the rows
    inferred_ops: tuple[InferredOp, ...]

    @property
    def tower(self) -> Tower:
        """The tower in the precision that is asked for."""
        return self.lowered.tower

    def without_fp32(self) -> "OpenedTower":
        """Return the opened tower without its fp32 reference, which may take as much memory as all tables."""
        return replace(self, lowered=replace(self.lowered, fp32=None))


def open_tower(
    planned: TowerToExport,
    spec: ExportSpec,
    config_text: str,
    workspace: Path,
    clock: StageClock,
    *,
    require_source: Callable[[SourceRef], None] = lambda source: None,
    diagnostics: Diagnostics | None = None,
) -> OpenedTower:
    """Do everything that an export does before it traces: the stages config, checkpoint and rows.

    They are reported to `clock`. The checkpoint is fetched to
    `workspace`, unless it is there. `require_source` may refuse it before its weights are read. The sizes of
    the inputs are kept in `diagnostics` for a later failure.

    Raises:
        ExportError: the machine, the config, the checkpoint or the rows are not what they have to be.
    """
    with clock.stage(Stage.CONFIG):
        require_torch(spec.torch)
        device = require_target(spec.targets[0])
        blueprint = open_blueprint(planned, spec, config_text)
        tower = blueprint.build()
    with clock.stage(Stage.CHECKPOINT):
        pipeline = tower.config.pipeline
        checkpoint, checkpoint_source = fetch_checkpoint_once(spec, workspace, pipeline)
        require_source(checkpoint_source)
        if blueprint.settle(checkpoint):
            tower = blueprint.build()
        filled = blueprint.fill(tower, checkpoint)
        lowered = lower_tower(tower, device, tolerance=spec.fp32_tolerance)
    tower = lowered.tower
    with clock.stage(Stage.ROWS):
        rows, rows_source = open_rows(blueprint.planned, spec)
        rows = replace(rows, known_ids=known_ids(tower.module))
        folder = workspace / planned.name
        items = open_items(blueprint.planned, spec, folder) if spec.materialise_items else None
        if spec.strict_bounds:
            tower = bound_by_tried(tower, rows, device)
            lowered = replace(lowered, tower=tower)
        inputs = {name: each.to(device) for name, each in trace_inputs(rows, tower.plan).items()}
        if diagnostics is not None:
            diagnostics.keep("sizes.txt", partial(describe_inputs, inputs))
        blueprint.try_out(tower, inputs)
        inferred_ops = infer_shape_rules(tower, rows, device, allowed=spec.allow_inferred_ops)
    return OpenedTower(
        blueprint=blueprint,
        filled=filled,
        lowered=lowered,
        rows=rows,
        inputs=inputs,
        items=items,
        device=device,
        sources=(checkpoint_source, rows_source),
        inferred_ops=inferred_ops,
    )


def describe_inputs(inputs: Mapping[str, Tensor]) -> str:
    """Return the dtypes and sizes of a tower's inputs for people, one tensor per line."""
    return "".join(f"{name}: {tensor.dtype} {list(tensor.shape)}\n" for name, tensor in inputs.items())
