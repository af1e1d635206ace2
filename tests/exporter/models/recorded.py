"""Towers with TorchEasyRec's weights, and the batches recorded from it."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.load import load_weights
from exporter.checkpoint.read import open_checkpoint
from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.dims.plan import plan_dims
from exporter.models.embedding.id_map import IdMap, settle_id_maps
from exporter.models.registry import build_tower
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import tower_configs
from exporter.verify.numerics import compare, measure_scales

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"
TOLERANCE = 1e-5  # of the output's scale: sums may be taken in another order

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
    [folder] = (FIXTURES / model).glob("model.ckpt-*")
    checkpoint = open_checkpoint(folder, averaged=pipeline_of(model).averaged_weights)
    load_weights(module, checkpoint)
    settle_id_maps(module, lambda name: checkpoint.pieces(PREFIX + name))


def read_batch(model: str, batch: str, kind: str) -> Batch:
    """Tensors of a recorded batch, named "<part>__<batch>"; the kind is in, mid or out."""
    return load_file(FIXTURES / model / "outputs" / f"{batch}.{kind}.safetensors")


@cache
def usual_scales(model: str, part: str) -> dict[str, float]:
    """Return the scale of each output in the largest recorded batch of a part.

    A single logit may happen to be a small difference of large numbers, and is rounded as these are: its own
    magnitude does not say how exact it can be. The check `Agreement` does the same in an export.
    """
    [largest] = (FIXTURES / model / "outputs").glob(f"{part}__*b32*.out.safetensors")
    return measure_scales(load_file(largest))


def require_close(actual: Batch, expected: Batch, usual: Mapping[str, float]) -> None:
    """Require each output to be as expected, to `TOLERANCE` of its scale or of the usual one if larger."""
    difference = compare(expected, actual, usual=usual)
    assert difference.within(TOLERANCE), difference


def part_of(tower: str) -> str:
    """Return the name that the recordings give a tower."""
    return tower if tower == "model" else f"{tower}_tower"


def observe(tower: Tower, stages: Iterable[str], inputs: Batch) -> dict[str, Any]:
    """Run the tower and return the outputs of submodules by name, with its lookups as `embedding_group`."""
    seen: dict[str, Any] = {"embedding_group": tower.served.lookup(inputs)}

    def keep(name: str) -> Callable[[nn.Module, object, object], None]:
        return lambda _module, _inputs, output: seen.__setitem__(name, output)

    handles = [tower.module.get_submodule(name).register_forward_hook(keep(name)) for name in stages]
    with torch.no_grad():
        tower.module(inputs)
    for handle in handles:
        handle.remove()
    return seen


def recorded_state(model: str, name: str) -> dict[str, list[object]]:
    """Name -> shape and dtype of every weight that a tower uses."""
    state: dict[str, list[object]] = json.loads(
        (FIXTURES / model / "outputs" / f"{part_of(name)}.state_dict.json").read_text()
    )
    return {
        name: entry for name, entry in state.items() if name.rpartition(".")[2] not in IdMap.TRAINING_ONLY
    }


def random_inputs(tower: Tower, history: list[int], candidates: list[int] | None = None) -> Batch:
    """Inputs for a tower: one value per row, and histories and candidates of the given lengths."""
    inputs: Batch = {}
    for feature in tower.config.pipeline.features:
        lengths = torch.ones(len(history), dtype=torch.long)
        if feature.sequence is not None:
            is_candidate = feature.name.startswith("cand")
            lengths = torch.tensor(candidates if is_candidate and candidates is not None else history)
        count = int(lengths.sum())
        if feature.table is None:
            inputs[f"{feature.name}.values"] = torch.randint(1, 900, (count, feature.value_dim)).float()
            inputs[f"{feature.name}.lengths"] = lengths.int()
        else:
            inputs[f"{feature.name}.values"] = torch.randint(feature.table.rows, (count,))
            inputs[f"{feature.name}.lengths"] = lengths
    return {tensor.name: inputs[tensor.name] for tensor in tower.plan.inputs}
