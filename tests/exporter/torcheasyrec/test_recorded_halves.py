"""The halves of recorded towers are those of TorchEasyRec's own exports, and compute what the tower does."""

import json
from pathlib import Path

import pytest
import torch

from exporter.config.schema import TowerConfig
from exporter.dims.halves import plan_halves
from exporter.packages.scripted_part import plan_torcheasyrec_halves
from exporter.spec import TowerName
from exporter.towers.view import tower_configs
from tests.exporter.models.recorded import (
    MODELS,
    Batch,
    pipeline_of,
    read_batch,
    recorded_batches,
    recorded_parts,
    recorded_tower,
    tower_of,
)

# What the dense packages of TorchEasyRec's own two-stage exports take, in order: name, dtype, and the size of
# the last axis (0: the rows of the call).
TAKEN: dict[str, dict[str, list[list[object]]]] = json.loads(
    Path(__file__).with_name("dense_inputs.json").read_text()
)
TOWERS = [(model, tower) for model, towers in TAKEN.items() for tower in towers]
PARTS = [(model, part) for model in MODELS for part in recorded_parts(model)]


def view(model: str, tower: str) -> TowerConfig:
    [config] = tower_configs(pipeline_of(model), (TowerName(tower),))
    return config


@pytest.mark.parametrize(("model", "tower"), TOWERS)
def test_the_dense_half_takes_what_torcheasyrecs_takes(model: str, tower: str) -> None:
    planned = plan_halves(view(model, tower), max_batch_size=64).plan.inputs
    widths = [each.shape[-1] if isinstance(each.shape[-1], int) else 0 for each in planned]
    taken: list[list[object]] = [
        [each.name, each.dtype, width] for each, width in zip(planned, widths, strict=True)
    ]
    assert taken == TAKEN[model][tower]


def batches_of(model: str, part: str) -> list[Batch]:
    """Recorded batches that TorchEasyRec could compute; they may hold more than a tower reads."""
    names = [
        f"{part}__{each['batch']}"
        for each in recorded_batches(model)
        if each["part"] == part and "error" not in each
    ]
    return [read_batch(model, name, "in") for name in names]


@pytest.mark.parametrize(("model", "part"), PARTS)
def test_the_halves_compute_what_the_tower_does(model: str, part: str) -> None:
    tower = recorded_tower(model, tower_of(part))
    scripted, dense = plan_torcheasyrec_halves(tower, max_batch_size=64)
    batches = batches_of(model, part)
    assert batches
    for batch in batches:
        with torch.no_grad():
            expected = tower.module(batch)
            between = scripted.look_up(batch)
            found = dense.module(between)
        assert [(name, str(value.dtype)) for name, value in between.items()] == [
            (each.name, f"torch.{each.dtype}") for each in dense.plan.inputs
        ]
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-6)
