"""Build a tower, or a whole model, with the code of its family.

A family's code is the module `exporter.models.<kind>.<family>`, by the kind and the name that
exporter.config.families.registry lists it under.
"""

from importlib import import_module
from typing import Protocol, cast

import torch
from torch import nn

from exporter.config.families.registry import FAMILIES
from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.dims.plan import DimPlan
from exporter.models.blocks.dropout import Dropout
from exporter.models.embedding.embedding_group import EmbeddingGroup
from exporter.models.embedding.id_map import training_only_names
from exporter.towers.tower import ServedModule, Tower


class FamilyModule(Protocol):
    """Functions that the module of every family has."""

    def build_served(self, config: TowerConfig, /) -> ServedModule:
        """Return one tower to serve, untrained.

        Raises:
            InvalidSpec: the family has no such tower.
        """

    def build_trained(self, pipeline: PipelineConfig, dropout: Dropout, /) -> nn.Module:
        """Return the whole model in the training view, initialised."""


def build_tower(config: TowerConfig, plan: DimPlan) -> Tower:
    """Build a tower to serve, untrained; its state dict has the checkpoint's names without "model."."""
    module = _family_module(config.pipeline.model.family).build_served(config)
    for part in module.modules():
        if isinstance(part, EmbeddingGroup):
            part.id_weights = config.options.id_weights
    return Tower(config=config, module=module.eval(), plan=plan)


def build_model(pipeline: PipelineConfig, dropout: Dropout | None = None) -> nn.Module:
    """Build the whole model in the training view, initialised to be trained from nothing.

    Its state dict has the names of a TorchEasyRec checkpoint without the leading "model.".
    """
    return _family_module(pipeline.model.family).build_trained(pipeline, dropout or Dropout())


def weight_names(pipeline: PipelineConfig) -> frozenset[str]:
    """Return the name of every tensor that a checkpoint of the model may have, without "model."."""
    with torch.device("meta"):
        model = build_model(pipeline)
    return training_only_names(model).union(model.state_dict())


def module_of(family: str) -> str:
    """Return the name of the module with a family's code."""
    return f"exporter.models.{FAMILIES[family].kind}.{family}"


def _family_module(family: str) -> FamilyModule:
    return cast(FamilyModule, import_module(module_of(family)))
