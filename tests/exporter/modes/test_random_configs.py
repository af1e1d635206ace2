"""Whatever the config: in both modes the traced programs compute what eager computes, at every size."""

import pytest
import torch
from torch import Tensor

from exporter.data.batch import trace_inputs, verification_batches
from exporter.parts import parts_of, trace_parts
from exporter.spec import Mode, TowerName
from exporter.towers.tower import Tower
from exporter.verify.numerics import FP32_TOLERANCE, compare
from tests.exporter.modes.random_configs import MAX_BATCH_SIZE, config_text, random_rows, random_tower

CONFIGS = 24  # a handful of seconds each: both towers, both modes

pytestmark = pytest.mark.slow


def run(tower: Tower, mode: Mode, seed: int) -> int:
    """Trace the tower's parts, hold them against eager at sizes never traced, and count those."""
    rows = random_rows(seed, tower)
    parts = parts_of(tower, mode, max_batch_size=MAX_BATCH_SIZE)
    traced = trace_parts(parts, trace_inputs(rows, tower.plan), torch.device("cpu"))
    programs = [(part.program.module(), part.part.tower.plan) for part in traced]
    sizes = 0
    for batch in verification_batches(rows, tower.plan):
        tensors: dict[str, Tensor] = batch.inputs
        with torch.no_grad():
            expected = tower.module(batch.inputs)
            for program, plan in programs:
                tensors = program({tensor.name: tensors[tensor.name] for tensor in plan.inputs})
        difference = compare(expected, tensors)
        assert difference.within(FP32_TOLERANCE), (batch.name, difference)
        sizes += 1
    return sizes


@pytest.mark.parametrize("seed", range(CONFIGS))
def test_traced_programs_equal_eager_in_both_modes(seed: int) -> None:
    for name in (TowerName.USER, TowerName.ITEM):
        tower = random_tower(seed, name)
        for mode in Mode:
            assert run(tower, mode, seed) >= 6


def test_the_configs_differ() -> None:
    assert len({config_text(seed) for seed in range(CONFIGS)}) == CONFIGS
