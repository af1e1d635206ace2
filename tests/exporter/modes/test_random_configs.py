"""Whatever the config: in both modes the traced programs compute what eager computes, at every size."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from exporter.data.batch import contradicting_batches, trace_inputs, verification_batches
from exporter.packages.parts import assemble_parts, compile_part, plan_parts, trace_parts
from exporter.spec import Mode, TowerName
from exporter.towers.tower import Tower
from exporter.trace.op_libraries import find_op_libraries
from exporter.verify.cases import Cases
from exporter.verify.gate import verify_tower
from exporter.verify.numerics import FP32_TOLERANCE, compare
from exporter.verify.runnable_tower import RunnableTower
from tests.exporter.modes.random_configs import MAX_BATCH_SIZE, config_text, random_rows, random_tower

CPU = torch.device("cpu")
CONFIGS, ALWAYS = 24, 8  # a handful of seconds each: both towers, both modes
SEEDS = [
    pytest.param(seed, id=f"config {seed + 1} of {CONFIGS}", marks=[] if seed < ALWAYS else pytest.mark.fuzz)
    for seed in range(CONFIGS)
]

pytestmark = pytest.mark.slow


def run(tower: Tower, mode: Mode, seed: int) -> int:
    """Trace the tower's parts, hold them against eager at sizes never traced, and count those."""
    rows = random_rows(seed, tower)
    parts = plan_parts(tower, mode, max_batch_size=MAX_BATCH_SIZE)
    traced = trace_parts(parts, trace_inputs(rows, tower.plan), CPU)
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


@pytest.mark.parametrize("seed", SEEDS)
def test_traced_programs_equal_eager_in_both_modes(seed: int) -> None:
    for name in (TowerName.USER, TowerName.ITEM):
        tower = random_tower(seed, name)
        for mode in Mode:
            assert run(tower, mode, seed) >= 6


@pytest.mark.parametrize("mode", [pytest.param(Mode.UNIFIED, marks=pytest.mark.fuzz), Mode.TWO_STAGE])
def test_packages_of_a_random_config_pass_the_gate(mode: Mode, tmp_path: Path) -> None:
    tower = random_tower(CONFIGS, TowerName.USER)
    rows = random_rows(CONFIGS, tower)
    parts = plan_parts(tower, mode, max_batch_size=MAX_BATCH_SIZE)
    traced = trace_parts(parts, trace_inputs(rows, tower.plan), CPU)
    compiled = assemble_parts([compile_part(part, "unused") for part in traced], tmp_path)
    runnable = RunnableTower(
        tower=tower,
        chain=[part.link for part in compiled],
        op_libraries=find_op_libraries(part.program for part in traced),
        scratch=tmp_path,
        device=CPU,
    )
    cases = Cases(
        must_agree=list(verification_batches(rows, tower.plan)),
        must_be_refused=list(contradicting_batches(rows, tower.plan)),
    )
    report = verify_tower(runnable, cases, lambda fraction, detail: None)
    assert len(report.cases) >= 10


def test_the_configs_differ() -> None:
    assert len({config_text(seed) for seed in range(CONFIGS)}) == CONFIGS
