"""A planned tower opened: built, filled with its weights, and with rows to try it on."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from exporter.aoti.architecture import require_target
from exporter.construction.blueprint import Blueprint, ConfiguredTower
from exporter.construction.declared_blueprint import open_tower as open_declared
from exporter.construction.sources import fetch_checkpoint_once, open_rows
from exporter.data.batch import Rows, trace_inputs
from exporter.lowering.lower_tower import lower
from exporter.manifest import SourceRef
from exporter.spec import ExportSpec
from exporter.towers.plan import TowerToExport, UnopenedTower
from exporter.towers.tower import Tower
from exporter.trace.shape_rules import infer_shape_rules


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """A tower with its weights, and rows to try it on."""

    tower: Tower
    rows: Rows
    inputs: dict[str, Tensor]  # to trace it on
    device: torch.device


def blueprint_of(planned: TowerToExport, spec: ExportSpec, config_text: str) -> Blueprint:
    """How to build the tower; the code of a family of one's own is loaded here, and nowhere before."""
    if isinstance(planned, UnopenedTower):
        return open_declared(planned, spec, config_text)
    return ConfiguredTower(planned, spec.tables)


def fill(
    blueprint: Blueprint,
    tower: Tower,
    spec: ExportSpec,
    workspace: Path,
    require: Callable[[SourceRef], None] = lambda source: None,
) -> tuple[Tower, SourceRef]:
    """The tower with the checkpoint's weights, which `require` may refuse before they are read."""
    averaged = tower.config.pipeline.averaged_weights
    checkpoint, source = fetch_checkpoint_once(spec, workspace, averaged=averaged)
    require(source)
    blueprint.fill(tower, checkpoint)
    return tower, source


def open_tower(
    planned: TowerToExport,
    spec: ExportSpec,
    config_text: str,
    workspace: Path,
    require: Callable[[SourceRef], None] = lambda source: None,
) -> Opened:
    """What an export does before it traces, outside of its stages; `workspace` may hold the checkpoint.

    `require` may refuse the checkpoint before it is held against the model.
    """
    device = require_target(spec.targets[0])
    blueprint = blueprint_of(planned, spec, config_text)
    tower = blueprint.build()
    tower, _ = fill(blueprint, tower, spec, workspace, require)
    tower = lower(tower, device).tower
    rows, _ = open_rows(blueprint.planned, spec)
    inputs = {name: each.to(device) for name, each in trace_inputs(rows, tower.plan).items()}
    blueprint.try_out(tower, inputs)
    infer_shape_rules(tower, rows, device, allowed=spec.allow_inferred_ops)
    return Opened(tower=tower, rows=rows, inputs=inputs, device=device)
