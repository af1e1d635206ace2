"""dssm: one vector per user and one per item, each from DEEP groups; dat and dssm_v2 have the same towers."""

from exporter.config.families.match.dssm import DssmConfig
from exporter.config.schema import TowerConfig
from exporter.models.match_tower import DeepTower, MatchTower, make_builders
from exporter.spec import TowerName


def _tower(config: TowerConfig) -> MatchTower:
    model = config.pipeline.model
    assert isinstance(model, DssmConfig)
    return DeepTower(config.pipeline, model, model.item if config.name is TowerName.ITEM else model.user)


build_served, build_trained = make_builders(_tower)
