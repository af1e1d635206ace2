"""Towers with TorchEasyRec's weights, and the batches recorded from it."""

import json
import warnings
from functools import cache
from pathlib import Path

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


@cache
def pipeline_of(model: str) -> PipelineConfig:
    return parse_pipeline_config((FIXTURES / model / "pipeline.config").read_text())


@cache
def recorded_tower(model: str, name: str) -> Tower:
    """A tower of a fixture model, with the checkpoint's weights, in the view it is served in."""
    [config] = tower_configs(pipeline_of(model), (TowerName(name),))
    tower = untrained(config)
    load_recorded_weights(tower.module, model)
    return tower


def untrained(config: TowerConfig) -> Tower:
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


def read_batch(model: str, batch: str, kind: str) -> Batch:
    """Tensors of a recorded batch, named "<tower>_tower__<batch>"; the kind is in, mid or out."""
    return load_file(FIXTURES / model / "outputs" / f"{batch}.{kind}.safetensors")


def recorded_state(model: str, name: str) -> dict[str, list[object]]:
    """Name -> shape and dtype of every weight that a tower uses."""
    state: dict[str, list[object]] = json.loads(
        (FIXTURES / model / "outputs" / f"{name}_tower.state_dict.json").read_text()
    )
    return state


def random_inputs(tower: Tower, history: list[int]) -> Batch:
    """Inputs for a tower: one value per row, and histories of the given lengths."""
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
