"""dbmtl: what its message says, and what it needs of its group."""

import pytest

from exporter.config.blocks.mask_net import MaskBlockConfig, MaskNetConfig
from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.mmoe import MmoeConfig
from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.config.families.multi_task.dbmtl import DbmtlConfig, RelatedTaskConfig
from exporter.config.parse import parse_pipeline_config
from exporter.errors import InvalidPipelineConfig
from tests.exporter.config.conftest import FIXTURES

_CVR_RELATION = 'relation_tower_names: "ctr"\n      relation_mlp'
_ATTENDED = 'feature_names: "item_id"\n      feature_names: "buy_items"'


def parse(*edits: tuple[str, str]) -> DbmtlConfig:
    """The recorded config with pairs of (old, new) text replaced, the first occurrence of each."""
    text = (FIXTURES / "dbmtl" / "pipeline.config").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    model = parse_pipeline_config(text).model
    assert isinstance(model, DbmtlConfig)
    return model


def mask_net(fields: str) -> MaskNetConfig | None:
    return parse(("  dbmtl {", f"  dbmtl {{ mask_net {{ {fields} }}")).mask_net


def test_the_model_is_read() -> None:
    model = parse()
    assert (model.input, model.mask_net) == ("deep", None)
    assert model.bottom_mlp == MlpConfig(hidden_units=(48,), use_bn=True)
    assert model.mmoe == MmoeConfig(expert_mlp=MlpConfig(hidden_units=(24,)), num_expert=3)
    assert [task.task.name for task in model.tasks] == ["ctr", "cvr", "stay"]
    assert model.tasks[2] == RelatedTaskConfig(
        task=TaskConfig(name="stay", losses=(Loss.L2,)),
        relation_mlp=MlpConfig(hidden_units=(8,)),
        relations=("ctr", "cvr"),
    )


@pytest.mark.parametrize(
    ("fields", "block"),
    [
        ("", MaskBlockConfig(hidden_dim=8, reduction_ratio=1)),
        ("aggregation_dim: 5", MaskBlockConfig(hidden_dim=8, reduction_ratio=1)),
        ("reduction_ratio: 0.7 aggregation_dim: 5", MaskBlockConfig(hidden_dim=8, reduction_ratio=0.7)),
        ("reduction_ratio: 0 aggregation_dim: 5", MaskBlockConfig(hidden_dim=8, aggregation_dim=5)),
    ],
)
def test_a_ratio_goes_before_a_width(fields: str, block: MaskBlockConfig) -> None:
    expected = MaskNetConfig(blocks=2, block=block, parallel=True)
    assert mask_net(f"n_mask_blocks: 2 mask_block {{ hidden_dim: 8 {fields} }}") == expected


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("n_mask_blocks: 0 mask_block { hidden_dim: 8 }", "n_mask_blocks is 0"),
        ("n_mask_blocks: 1 mask_block { hidden_dim: 0 }", "hidden_dim is 0"),
        ("n_mask_blocks: 1 mask_block { hidden_dim: 8 reduction_ratio: 0 }", "aggregation_dim 0"),
        ("n_mask_blocks: 1 mask_block { hidden_dim: 8 reduction_ratio: 0.001 }", "of a width of 148"),
        (
            "n_mask_blocks: 2 use_parallel: false mask_block { hidden_dim: 2 reduction_ratio: 0.4 }",
            "reduction_ratio 0.4 of a width of 2 is below 1",
        ),
    ],
)
def test_a_mask_net_that_cannot_be_is_refused(fields: str, problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        mask_net(fields)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (_CVR_RELATION, _CVR_RELATION.replace("ctr", "stay"), "has stay, which is no task in front of it"),
        (_CVR_RELATION, _CVR_RELATION.replace("ctr", "cvr"), "has cvr, which is no task in front of it"),
        ('tower_name: "cvr"', 'tower_name: "ctr"', "two tasks are named ctr"),
        ("num_class: 2", "num_class: 1", "task cvr: num_class is 1"),
        ("num_expert: 3", "num_expert: 0", "num_expert is 0"),
        ("group_type: DEEP", "group_type: JAGGED_SEQUENCE", "is not of group_type DEEP"),
        (_ATTENDED, 'feature_names: "buy_items"', "needs a query"),
    ],
)
def test_contradictions_are_refused(old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        parse((old, new))


def test_names_of_related_tasks_mean_nothing_without_relation_mlp() -> None:
    model = parse(("relation_mlp {\n        hidden_units: 8\n      }", ""))
    assert (model.tasks[1].relation_mlp, model.tasks[1].relations) == (None, ())


def test_the_first_group_is_read_and_must_be_one_vector_per_row() -> None:
    group = 'feature_groups { group_name: "s" feature_names: "buy_items" group_type: SEQUENCE }'
    with pytest.raises(InvalidPipelineConfig, match="dbmtl reads the first group"):
        parse(("model_config {", f"model_config {{ {group}"))
