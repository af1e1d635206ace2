"""Towers survive torch.export and AOTInductor, at sizes they were not traced with."""

from dataclasses import replace

import pytest
import torch

from exporter.aoti.compile import compile_package
from exporter.aoti.torch_private import Package
from exporter.aoti.trace import trace
from exporter.config.hstu import PostprocessorConfig, PostprocessorKind
from exporter.config.schema import PipelineConfig
from exporter.spec import TowerName
from exporter.towers.view import training_tower

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning"),  # fbgemm calls it
]

TRACED = [3, 9, 5, 0, 4, 2, 6]  # 7 rows and 29 events
HISTORIES = ([5], [0], [1], [0, 0], [7, 0], [0, 3, 0], [3] * 7, [0] * 7, [96, 1], [200, 2, 0] + [11] * 29)


def stacked(pipeline: PipelineConfig) -> PipelineConfig:
    """No context, semi-local attention, histories cut half way, time of day: what no fixture has."""
    hstu = pipeline.model.hstu
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
        model=replace(pipeline.model, hstu=hstu),
        groups=tuple(group for group in pipeline.groups if group.name != "contextual"),
    )


def compiled(tower, inputs, folder):
    program = trace(tower, inputs, torch.device("cpu"))
    return Package(compile_package(program, folder / "aoti_model.pt2"))


@pytest.fixture(scope="module")
def packages():
    """Compile each tower once for all tests of this file."""
    return {}


@pytest.fixture(params=["recorded", "stacked"])
def tower_and_package(
    request, load_tower, load_pipeline, build_untrained, make_inputs, packages, tmp_path_factory
):
    if request.param not in packages:
        if request.param == "recorded":
            tower = load_tower("hstu_match", "user")
        else:
            tower = build_untrained(training_tower(stacked(load_pipeline("hstu_match_desc")), TowerName.USER))
        inputs = make_inputs(tower, TRACED)
        for number, feature in enumerate(f for f in tower.config.pipeline.features if f.is_multivalued):
            inputs[f"{feature.name}.lengths"][0] = number + 5  # totals of their own, so that none coincide
            inputs[f"{feature.name}.values"] = torch.zeros(number + 11, dtype=torch.long)
        packages[request.param] = tower, compiled(tower, inputs, tmp_path_factory.mktemp(request.param))
    return packages[request.param]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: f"{len(history)}x{max(history)}")
def test_a_package_computes_what_eager_computes(tower_and_package, make_inputs, history):
    tower, package = tower_and_package
    inputs = make_inputs(tower, history)
    with torch.no_grad():
        expected = tower.module(inputs)["user_tower_emb"]
    tolerance = 1e-5 * expected.abs().max().item()
    torch.testing.assert_close(package(inputs)["user_tower_emb"], expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("difference", [-1, 1, 5000])
def test_a_package_refuses_lengths_that_do_not_add_up(tower_and_package, make_inputs, difference):
    tower, package = tower_and_package
    inputs = make_inputs(tower, [3, 4])
    for name in inputs:
        if name.startswith("uih_seq") and name.endswith("lengths"):
            inputs[name][1] += difference
    with pytest.raises(RuntimeError, match="uih_seq__video_id.lengths .* does not add up"):
        package(inputs)


def test_a_package_refuses_lengths_that_differ_within_a_sequence(tower_and_package, make_inputs):
    tower, package = tower_and_package
    inputs = make_inputs(tower, [3, 4])
    inputs["uih_seq__action_timestamp.lengths"] = torch.tensor([4, 3], dtype=torch.int32)
    with pytest.raises(
        RuntimeError, match="uih_seq__action_timestamp.lengths differs from uih_seq__video_id"
    ):
        package(inputs)


@pytest.mark.parametrize("stranger", [-1, 2000, 2**40])
def test_a_package_refuses_ids_without_a_row(tower_and_package, make_inputs, stranger):
    tower, package = tower_and_package
    inputs = make_inputs(tower, [3, 4])
    inputs["uih_seq__video_id.values"][6] = stranger
    with pytest.raises(RuntimeError, match="uih_seq__video_id.values has an id outside the 2000 rows"):
        package(inputs)
