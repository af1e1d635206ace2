"""Towers with TorchEasyRec's weights, and the batches recorded from it."""

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader, load

from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.dims.plan import plan_dims
from exporter.models.registry import build_tower
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import tower_configs

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"

Batch = dict[str, Tensor]
LoadTower = Callable[[str, str], Tower]
ReadBatch = Callable[[str, str, str], Batch]
MakeInputs = Callable[[Tower, list[int]], Batch]


@cache
def _pipeline(model: str) -> PipelineConfig:
    return parse_pipeline_config((FIXTURES / model / "pipeline.config").read_text())


@cache
def _tower(model: str, name: str) -> Tower:
    [config] = tower_configs(_pipeline(model), (TowerName(name),))
    tower = _untrained(config)
    load_recorded_weights(tower.module, model)
    return tower


def _untrained(config: TowerConfig) -> Tower:
    torch.manual_seed(0)
    return build_tower(config, plan_dims(config.pipeline.features, max_batch_size=64))


def load_recorded_weights(module: nn.Module, model: str) -> None:
    wanted = {f"model.{name}": torch.empty_like(tensor) for name, tensor in module.state_dict().items()}
    with warnings.catch_warnings(action="ignore"):  # that no process group is needed to read
        load(
            wanted,
            storage_reader=FileSystemReader(FIXTURES / model / "model.ckpt-11" / "model"),
            no_dist=True,
        )
    module.load_state_dict({name.removeprefix("model."): tensor for name, tensor in wanted.items()})


@pytest.fixture
def load_pipeline() -> Callable[[str], PipelineConfig]:
    return _pipeline


@pytest.fixture
def load_tower() -> LoadTower:
    """A tower of a fixture model, with the checkpoint's weights, in the view it is served in."""
    return _tower


@pytest.fixture
def build_untrained() -> Callable[[TowerConfig], Tower]:
    return _untrained


@pytest.fixture
def load_weights() -> Callable[[nn.Module, str], None]:
    return load_recorded_weights


@pytest.fixture
def read_batch() -> ReadBatch:
    """Tensors of a recorded batch by model, "<tower>_tower__<batch>" and kind: in, mid or out."""
    return lambda model, batch, kind: load_file(FIXTURES / model / "outputs" / f"{batch}.{kind}.safetensors")


@pytest.fixture
def make_inputs() -> MakeInputs:
    """Random inputs for a tower: one value per row, and histories of the given lengths."""
    return _inputs


def _inputs(tower: Tower, history: list[int]) -> Batch:
    inputs: Batch = {}
    for feature in tower.config.pipeline.features:
        lengths = torch.tensor(history) if feature.is_sequence else torch.ones(len(history), dtype=torch.long)
        count = int(lengths.sum())
        if feature.table is None:
            inputs[f"{feature.name}.values"] = torch.randint(1, 900, (count, feature.value_dim)).float()
            inputs[f"{feature.name}.lengths"] = lengths.int()
        else:
            inputs[f"{feature.name}.values"] = torch.randint(feature.table.rows, (count,))
            inputs[f"{feature.name}.lengths"] = lengths
    return {tensor.name: inputs[tensor.name] for tensor in tower.plan.inputs}
