"""The recorded two-tower config, as text and with one thing changed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import PipelineConfig

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"

ParseEdited = Callable[..., PipelineConfig]


@pytest.fixture(scope="session")
def text() -> str:
    return (FIXTURES / "hstu_match" / "pipeline.config").read_text()


@pytest.fixture(scope="session")
def desc_text() -> str:
    return (FIXTURES / "hstu_match_desc" / "pipeline.config").read_text()


@pytest.fixture
def parse_edited(text: str) -> ParseEdited:
    """Parse the config with pairs of (old, new) text replaced, the first occurrence of each."""

    def parse(*edits: tuple[str, str]) -> PipelineConfig:
        edited = text
        for old, new in edits:
            assert old in edited
            edited = edited.replace(old, new, 1)
        return parse_pipeline_config(edited, where="pipeline.config")

    return parse


@pytest.fixture
def parse_with_feature(parse_edited: ParseEdited) -> ParseEdited:
    """Parse the config with one more feature_configs entry in front."""

    def parse(feature: str) -> PipelineConfig:
        return parse_edited(("feature_configs {", f"feature_configs {{ {feature} }}\nfeature_configs {{"))

    return parse
