"""dc2vr: what its message says of interventions, and which cannot be."""

import pytest

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.config.families.multi_task.dc2vr import Dc2vrConfig, IntervenedTask
from exporter.errors import InvalidPipelineConfig
from tests.exporter.config.families.edited import parse_recorded

_SOURCES = 'intervention_tower_names: "ctr"\n      intervention_tower_names: "cvr"'


def parse(*edits: tuple[str, str]) -> Dc2vrConfig:
    model = parse_recorded("dc2vr", *edits)
    assert isinstance(model, Dc2vrConfig)
    return model


def test_interventions_are_read() -> None:
    model = parse()
    assert model.bottom_mlp == MlpConfig(hidden_units=(24,))
    assert model.mmoe is not None
    assert model.mmoe.num_expert == 3
    assert [(task.low_rank_dim, task.relations) for task in model.tasks] == [
        (None, ()),
        (4, ("ctr",)),
        (5, ("ctr", "cvr")),
    ]
    assert model.tasks[0] == IntervenedTask(
        task=TaskConfig(name="ctr", losses=(Loss.BINARY_CROSS_ENTROPY,)), mlp=MlpConfig(hidden_units=(12,))
    )


def test_sources_mean_nothing_without_low_rank_dim() -> None:
    model = parse(("low_rank_dim: 4\n      dropout_ratio: 0.2", ""))
    assert (model.tasks[1].low_rank_dim, model.tasks[1].relations) == (None, ())


def test_tasks_may_come_straight_from_the_group() -> None:
    experts = "expert_mlp {\n      hidden_units: 16\n    }"
    model = parse((experts, ""), ("bottom_mlp {\n      hidden_units: 24\n    }", ""))
    assert (model.bottom_mlp, model.mmoe) == (None, None)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (_SOURCES, 'intervention_tower_names: "cart"', "has cart, which is no task in front of it"),
        (_SOURCES, 'intervention_tower_names: "stay"', "has stay, which is no task in front of it"),
        (_SOURCES, "", "there are no intervention_tower_names"),
        ("low_rank_dim: 4", "low_rank_dim: 0", "low_rank_dim is 0"),
        (
            "low_rank_dim: 4",
            "low_rank_dim: 10",
            "low_rank_dim is 10, the task's width 10 and its sources' 12",
        ),
        (
            "low_rank_dim: 5",
            "low_rank_dim: 16",
            "low_rank_dim is 16, the task's width 16 and its sources' 22",
        ),
        ("num_expert: 3", "num_expert: 0", "num_expert is 0"),
        ('tower_name: "cvr"', 'tower_name: "apply"', "'apply' cannot be the name of weights"),
    ],
)
def test_contradictions_are_refused(old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        parse((old, new))
