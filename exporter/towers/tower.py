"""A servable slice of a model: a module from named inputs to named outputs."""

from dataclasses import dataclass

from torch import nn

from exporter.dims.plan import DimPlan
from exporter.spec import TowerName
from exporter.towers.view import TowerConfig


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A tower ready to be traced.

    The module's forward takes one dict of tensors, keyed and ordered as `plan.inputs`, and returns a
    dict of tensors keyed by output name. Its parameters and buffers carry the checkpoint's names.
    """

    config: TowerConfig
    module: nn.Module
    plan: DimPlan

    @property
    def name(self) -> TowerName:
        return self.config.name
