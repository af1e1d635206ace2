"""Which code builds which model family, by the type of its config."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from exporter.config.families.hstu import DlrmHstuConfig, HstuMatchConfig
from exporter.config.families.match import DssmConfig, MindConfig
from exporter.config.families.ranking import DbmtlConfig, MultiTowerDinConfig
from exporter.config.schema import ModelConfig, PipelineConfig, TowerConfig
from exporter.dims.plan import DimPlan
from exporter.models.blocks.dropout import Dropout
from exporter.models.dbmtl import model as dbmtl
from exporter.models.dlrm_hstu import model as dlrm_hstu
from exporter.models.dssm import model as dssm
from exporter.models.hstu_match import model as hstu_match
from exporter.models.mind import model as mind
from exporter.models.multi_tower_din import model as multi_tower_din
from exporter.towers.tower import ServedModule, Tower


@dataclass(frozen=True, kw_only=True)
class Family:
    """How a model family is built: one tower to serve, or the whole model to train."""

    served: Callable[[TowerConfig], ServedModule]
    trained: Callable[[PipelineConfig, Dropout], nn.Module]


_FAMILIES: dict[type[ModelConfig], Family] = {
    HstuMatchConfig: Family(served=hstu_match.build_served, trained=hstu_match.HstuMatch),
    DlrmHstuConfig: Family(served=dlrm_hstu.build_served, trained=dlrm_hstu.DlrmHstu),
    DssmConfig: Family(served=dssm.build_served, trained=dssm.build_trained),
    MindConfig: Family(served=mind.build_served, trained=mind.build_trained),
    MultiTowerDinConfig: Family(
        served=multi_tower_din.build_served,
        trained=lambda pipeline, _: multi_tower_din.MultiTowerDin(pipeline),
    ),
    DbmtlConfig: Family(served=dbmtl.build_served, trained=lambda pipeline, _: dbmtl.Dbmtl(pipeline)),
}


def build_tower(config: TowerConfig, plan: DimPlan) -> Tower:
    """Build a tower to serve, untrained; its state dict has the checkpoint's names without "model."."""
    module = _FAMILIES[type(config.pipeline.model)].served(config)
    return Tower(config=config, module=module.eval(), plan=plan)


def build_model(pipeline: PipelineConfig, dropout: Dropout | None = None) -> nn.Module:
    """Build the whole model in the training view, initialised to be trained from nothing.

    Its state dict has the names of a TorchEasyRec checkpoint without the leading "model.".
    """
    return _FAMILIES[type(pipeline.model)].trained(pipeline, dropout or Dropout())


def weight_names(pipeline: PipelineConfig) -> frozenset[str]:
    """The names of every tensor that a checkpoint of the whole model holds, without "model."."""
    with torch.device("meta"):
        return frozenset(build_model(pipeline).state_dict())
