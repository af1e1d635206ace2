"""Towers survive torch.export and AOTInductor, at sizes they were not traced with."""

from dataclasses import replace

import pytest
import torch

from exporter.aoti.torch_loader import Package
from exporter.config.families.match.hstu_match import HstuMatchConfig
from exporter.config.hstu.encoder import PostprocessorConfig, PostprocessorKind
from exporter.config.schema import PipelineConfig
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import training_tower
from exporter.trace.trace_tower import trace_tower
from tests.compiled_package import compile_package
from tests.exporter.models.recorded import (
    pipeline_of,
    random_inputs,
    recorded_tower,
    require_close,
    untrained,
)

REFUSED = "Expected u[0-9]+ <= 0 but received"  # the number of the demand that was not met

# Run by `make families`: in `make test` tests/e2e compiles the recorded model, and test_export_ranking.py
# what no recording has.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.families,
    pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning"),  # fbgemm calls it
]

Compiled = tuple[Tower, Package]

TRACED = [3, 9, 5, 0, 4, 2, 6]  # 7 rows and 29 events
HISTORIES = ([5], [0], [1], [0, 0], [7, 0], [0, 3, 0], [3] * 7, [0] * 7, [96, 1], [200, 2, 0] + [11] * 29)


def stacked(pipeline: PipelineConfig) -> PipelineConfig:
    """No context, semi-local attention, histories cut half way, time of day: what no fixture has."""
    model = pipeline.model
    assert isinstance(model, HstuMatchConfig)
    hstu = model.hstu
    kind = PostprocessorKind.TIMESTAMP_LAYERNORM
    hstu = replace(
        hstu,
        stu=replace(hstu.stu, sla_k1=4, sla_k2=3, use_group_norm=False),
        attn_truncation_split_layer=1,
        attn_truncation_tail_len=5,
        postprocessor=PostprocessorConfig(kind=kind, period_units=(3600,), units_per_period=(24,)),
    )
    return replace(
        pipeline,
        model=replace(model, hstu=hstu),
        groups=tuple(group for group in pipeline.groups if group.name != "contextual"),
    )


@pytest.fixture(scope="module", params=["recorded", "stacked"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """A tower, and what became of it; compiled once for all tests of this file."""
    if request.param == "recorded":
        tower = recorded_tower("hstu_match", "user")
    else:
        tower = untrained(training_tower(stacked(pipeline_of("hstu_match_desc")), TowerName.USER))
    inputs = random_inputs(tower, TRACED)
    multivalued = [feature for feature in tower.config.pipeline.features if feature.is_multivalued]
    for number, feature in enumerate(multivalued):
        inputs[f"{feature.name}.lengths"][0] = number + 5  # totals of their own, so that none coincide
        inputs[f"{feature.name}.values"] = torch.zeros(number + 11, dtype=torch.long)
    program = trace_tower(tower, inputs, torch.device("cpu"))
    path = tmp_path_factory.mktemp(request.param) / "aoti_model.pt2"
    return tower, Package(compile_package(program, path))


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: f"{len(history)}x{max(history)}")
def test_a_package_computes_what_eager_computes(compiled: Compiled, history: list[int]) -> None:
    tower, package = compiled
    inputs = random_inputs(tower, history)
    with torch.no_grad():
        expected = tower.module(inputs)
    require_close(package(inputs), expected, {})


@pytest.mark.parametrize("difference", [-1, 1, 5000])
def test_a_package_refuses_lengths_that_do_not_add_up(compiled: Compiled, difference: int) -> None:
    tower, package = compiled
    inputs = random_inputs(tower, [3, 4])
    for name in inputs:
        if name.startswith("uih_seq") and name.endswith("lengths"):
            inputs[name][1] += difference
    with pytest.raises(RuntimeError, match=REFUSED):
        package(inputs)


def test_a_package_refuses_lengths_that_differ_within_a_sequence(
    compiled: Compiled,
) -> None:
    tower, package = compiled
    inputs = random_inputs(tower, [3, 4])
    inputs["uih_seq__action_timestamp.lengths"] = torch.tensor([4, 3], dtype=torch.int32)
    with pytest.raises(RuntimeError, match=REFUSED):
        package(inputs)


@pytest.mark.parametrize("stranger", [-1, 2000, 2**40])
def test_a_package_refuses_ids_without_a_row(compiled: Compiled, stranger: int) -> None:
    tower, package = compiled
    inputs = random_inputs(tower, [3, 4])
    inputs["uih_seq__video_id.values"][6] = stranger
    with pytest.raises(RuntimeError, match=REFUSED):
        package(inputs)
