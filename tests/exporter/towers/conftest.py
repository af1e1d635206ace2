"""The recorded configs, parsed."""

from pathlib import Path

import pytest

from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import PipelineConfig

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"


@pytest.fixture(scope="session")
def pipeline_text() -> str:
    return (FIXTURES / "hstu_match" / "pipeline.config").read_text()


@pytest.fixture(scope="session")
def pipeline(pipeline_text: str) -> PipelineConfig:
    return parse_pipeline_config(pipeline_text)


@pytest.fixture(scope="session", params=["dssm", "dat", "mind"])
def match_pipeline(request: pytest.FixtureRequest) -> PipelineConfig:
    return parse_pipeline_config((FIXTURES / request.param / "pipeline.config").read_text())


@pytest.fixture(scope="session")
def ranking_pipeline() -> PipelineConfig:
    return parse_pipeline_config((FIXTURES / "dlrm_hstu" / "pipeline.config").read_text())
