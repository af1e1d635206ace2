"""Recorded ranking models with other settings, untrained."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from exporter.models.ranking import RankingTower
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import tower_configs
from tests.exporter.models.recorded import pipeline_of, untrained


def rebuilt_tower(family: str, **changes: Any) -> Tower:
    """Return the tower of a recorded model whose settings are changed."""
    pipeline = pipeline_of(family)
    settings: Any = pipeline.model
    changed = replace(pipeline, model=replace(settings, **changes))
    [config] = tower_configs(changed, (TowerName.MODEL,))
    return untrained(config)


def rebuilt(family: str, **changes: Any) -> RankingTower:
    """Return its module."""
    module = rebuilt_tower(family, **changes).module
    assert isinstance(module, RankingTower)
    return module


def predicted(module: RankingTower, x: Tensor) -> dict[str, Tensor]:
    """Return the outputs of a model over one group, named `all`, from the group's vectors."""
    with torch.no_grad():
        return module.predict({"all": x})
