"""dssm: one vector per user and one per item, each from DEEP groups; dat and dssm_v2 have the same towers."""

from exporter.config.families.match.dssm import DssmConfig
from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.models.blocks.dropout import Dropout
from exporter.models.match_tower import DeepTower, MatchModel, MatchTower, ServedMatchTower
from exporter.spec import TowerName
from exporter.towers.tower import ServedModule
from exporter.towers.view import training_tower


def build_served(config: TowerConfig) -> ServedModule:
    """Return the served module of one tower."""
    return ServedMatchTower(config, _tower(config))


def build_trained(pipeline: PipelineConfig, _dropout: Dropout) -> MatchModel:
    """Return both towers, to be trained."""
    return MatchModel(
        pipeline,
        user=_tower(training_tower(pipeline, TowerName.USER)),
        item=_tower(training_tower(pipeline, TowerName.ITEM)),
    )


def _tower(config: TowerConfig) -> MatchTower:
    model = config.pipeline.model
    assert isinstance(model, DssmConfig)
    return DeepTower(config.pipeline, model, model.item if config.name is TowerName.ITEM else model.user)
