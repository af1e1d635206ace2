"""Every recorded model, traced in both modes, computes what eager computes at every size."""

import pytest
import torch

from exporter.data.batch import trace_inputs, verification_batches
from exporter.data.rows import read_rows
from exporter.packages.parts import plan_parts, trace_parts
from exporter.spec import Mode
from exporter.verify.numerics import FP32_TOLERANCE, compare
from tests.exporter.models.recorded import (
    MODELS,
    Batch,
    read_batch,
    recorded_batches,
    recorded_parts,
    require_close,
    rows_of,
    tolerance_of,
    tower_as_recorded,
    usual_scales,
)

pytestmark = pytest.mark.families

CPU = torch.device("cpu")
TOWERS = [(model, part) for model in MODELS for part in recorded_parts(model)]
MAX_BATCH_SIZE = 64  # of the towers' own plans


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(("model", "part"), TOWERS)
def test_programs_compute_what_eager_computes(model: str, part: str, mode: Mode) -> None:
    tower = tower_as_recorded(model, part)
    rows = rows_of(model)
    rows = rows.with_name("items.parquet") if tower.config.name.reads_items else rows
    sample = read_rows(str(rows), tower.config.pipeline.features)
    parts = trace_parts(
        plan_parts(tower, mode, max_batch_size=MAX_BATCH_SIZE), trace_inputs(sample, tower.plan), CPU
    )
    programs = [(part.program.module(), part.part.tower.plan) for part in parts]

    def run(tensors: Batch) -> Batch:
        with torch.no_grad():
            for program, plan in programs:
                tensors = program({tensor.name: tensors[tensor.name] for tensor in plan.inputs})
        return tensors

    for case in verification_batches(sample, tower.plan):
        with torch.no_grad():
            difference = compare(tower.module(case.inputs), run(case.inputs))
        assert difference.within(FP32_TOLERANCE), (case.name, difference)
    for batch in recorded_batches(model):
        if batch["part"] == part and "error" not in batch:
            name = f"{part}__{batch['batch']}"
            outputs, expected = run(read_batch(model, name, "in")), read_batch(model, name, "out")
            require_close(outputs, expected, usual_scales(model, part), tolerance_of(model))
