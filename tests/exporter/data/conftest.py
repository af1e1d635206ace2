"""Features of the shared fixtures, as their pipeline configs define them."""

from pathlib import Path

import pytest

from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import Feature
from exporter.towers.view import tower_configs

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"
TowerFeatures = dict[tuple[str, str], tuple[Feature, ...]]


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return FIXTURES


@pytest.fixture(scope="session")
def tower_features() -> TowerFeatures:
    """Features of recorded towers by model folder and tower name, in the view that is served."""
    return {
        (model, tower.name.value): tower.pipeline.features
        for model in ("hstu_match", "hstu_match_desc", "dlrm_hstu")
        for tower in tower_configs(
            parse_pipeline_config((FIXTURES / model / "pipeline.config").read_text()), None
        )
    }


@pytest.fixture(scope="session")
def user_features(tower_features: TowerFeatures) -> tuple[Feature, ...]:
    return tower_features["hstu_match", "user"]


@pytest.fixture(scope="session")
def item_features(tower_features: TowerFeatures) -> tuple[Feature, ...]:
    return tower_features["hstu_match", "item"]
