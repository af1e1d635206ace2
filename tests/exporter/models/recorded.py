"""Towers with TorchEasyRec's weights, and the batches recorded from it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.load import load_weights
from exporter.checkpoint.read import Checkpoint, open_checkpoint
from exporter.config.features.tables import take_rows
from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.dims.plan import plan_dims
from exporter.models.embedding.id_map import IdMap, settle_id_maps
from exporter.models.registry import build_tower
from exporter.spec import IdWeights, TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import tower_configs
from exporter.verify.numerics import compare, measure_scales

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"
MODELS = tuple(sorted(path.parent.name for path in FIXTURES.glob("*/pipeline.config")))
TOLERANCE = 1e-5  # of the output's scale: sums may be taken in another order
# TorchEasyRec's export rounds a pooled sum of FP16 rows to FP16; its trained model and ours do not.
ROUNDED_TOLERANCE = 1e-4
_ROUNDED = frozenset(("wide_and_deep",))

Batch = dict[str, Tensor]


@cache
def pipeline_of(model: str) -> PipelineConfig:
    return parse_pipeline_config((FIXTURES / model / "pipeline.config").read_text())


@cache
def recorded_tower(model: str, name: str) -> Tower:
    """A tower of a fixture model, with the checkpoint's weights, in the view it is served in."""
    [config] = tower_configs(pipeline_of(model), (TowerName(name),))
    checkpoint = recorded_checkpoint(model)
    shapes = {name: meta.shape for name, meta in checkpoint.tensors().items()}
    tower = untrained(replace(config, pipeline=take_rows(config.pipeline, shapes)))
    load_recorded_weights(tower.module, model)
    return tower


@cache
def tower_as_recorded(model: str, part: str) -> Tower:
    """A tower that ignores the weights of ids, as the recorded exports of TorchEasyRec do."""
    config = recorded_tower(model, tower_of(part)).config
    tower = untrained(replace(config, options=replace(config.options, id_weights=IdWeights.IGNORE)))
    load_recorded_weights(tower.module, model)
    return tower


def untrained(config: TowerConfig) -> Tower:
    torch.manual_seed(0)
    return build_tower(config, plan_dims(config.pipeline.features, max_batch_size=64))


def load_recorded_weights(module: nn.Module, model: str) -> None:
    checkpoint = recorded_checkpoint(model)
    load_weights(module, checkpoint)
    settle_id_maps(module, lambda name: checkpoint.pieces(PREFIX + name))


def recorded_checkpoint(model: str) -> Checkpoint:
    [folder] = (FIXTURES / model).glob("model.ckpt-*")
    return open_checkpoint(folder, averaged=pipeline_of(model).averaged_weights)


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


def require_close(
    actual: Batch, expected: Batch, usual: Mapping[str, float], tolerance: float = TOLERANCE
) -> None:
    """Require each output to be as expected, to a fraction of its scale or of the usual one if larger.

    Integers, as codes, must be equal.
    """
    for name in expected.keys() & actual.keys():
        if not expected[name].is_floating_point():
            assert torch.equal(actual[name], expected[name]), name
    difference = compare(expected, actual, usual=usual)
    assert difference.within(tolerance), difference


def tolerance_of(model: str) -> float:
    """Return the allowed difference from a model's recordings, as a fraction of an output's scale."""
    return ROUNDED_TOLERANCE if model in _ROUNDED else TOLERANCE


def recorded_parts(model: str) -> list[str]:
    """Return the names of a model's recorded parts, a part for each tower."""
    suffix = ".state_dict.json"
    return sorted(
        path.name.removesuffix(suffix) for path in (FIXTURES / model / "outputs").glob(f"*{suffix}")
    )


def recorded_batches(model: str) -> list[dict[str, str]]:
    """Return the batches that TorchEasyRec was given: part, name, rows, and the error if it failed."""
    indices = sorted((FIXTURES / model / "outputs").glob("index*.json"))
    return [
        {key: batch[key] for key in ("part", "batch", "parquet", "error") if key in batch}
        for index in indices
        for batch in json.loads(index.read_text())["batches"]
    ]


def rows_of(model: str) -> Path:
    """Return the rows that a model was trained on; its item rows lie beside them."""
    return FIXTURES / pipeline_of(model).train_input_path


def tower_of(part: str) -> str:
    """Return the name of the tower that a recorded part is."""
    return part.removesuffix("_tower")


def part_of(tower: str) -> str:
    """Return the name that the recordings give a tower."""
    return f"{tower}_tower" if tower in {"user", "item"} else tower


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
