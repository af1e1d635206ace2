"""Families of one vector per row: what their messages say, and what is refused."""

import pytest

from exporter.config.blocks.mask_net import MaskBlockConfig, MaskNetConfig
from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.mmoe import MmoeConfig
from exporter.config.blocks.task_towers import TaskTowerConfig
from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.config.families.multi_task.mmoe import MmoeModelConfig
from exporter.config.families.multi_task.ple import ExtractionConfig, PleConfig
from exporter.config.families.rank.dcn_v1 import DcnV1Config
from exporter.config.families.rank.dcn_v2 import DcnV2Config
from exporter.config.families.rank.mask_net import MaskNetModelConfig
from exporter.config.families.rank.rocket_launching import RocketLaunchingConfig
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from tests.exporter.config.conftest import FIXTURES
from tests.exporter.config.families.edited import parse_recorded

CLICK = TaskConfig(losses=(Loss.BINARY_CROSS_ENTROPY,))
_LOSS = "losses {\n    softmax_cross_entropy {\n    }\n  }\n  metrics"
_TOP = "top_mlp {\n        hidden_units: 16\n        hidden_units: 8\n      }"
_SHARED = "share_expert_net {\n        hidden_units: 10"
_MMOE_TASK = 'tower_name: "cvr"'


def test_every_field_of_a_cross_network_is_read() -> None:
    assert parse_recorded("dcn_v1") == DcnV1Config(
        input="all",
        cross_layers=3,
        deep=MlpConfig(hidden_units=(32, 16)),
        final=MlpConfig(hidden_units=(16, 8)),
        task=CLICK,
    )
    assert parse_recorded("dcn_v2") == DcnV2Config(
        input="all",
        backbone=MlpConfig(hidden_units=(24,)),
        cross_layers=2,
        low_rank=8,
        deep=MlpConfig(hidden_units=(24, 12)),
        final=MlpConfig(hidden_units=(16,)),
        task=CLICK,
    )


def test_a_low_rank_cross_network_alone_has_defaults() -> None:
    deep = "    deep {\n      hidden_units: 24\n      hidden_units: 12\n    }\n"
    backbone = "backbone {\n      hidden_units: 24\n    }"
    model = parse_recorded("dcn_v2", (deep, ""), (backbone, ""), ("cross_num: 2\n      low_rank: 8", ""))
    assert isinstance(model, DcnV2Config)
    assert (model.backbone, model.deep, model.cross_layers, model.low_rank) == (None, None, 3, 32)


def test_every_field_of_a_mask_net_is_read() -> None:
    assert parse_recorded("mask_net") == MaskNetModelConfig(
        input="all",
        mask_net=MaskNetConfig(
            blocks=2,
            block=MaskBlockConfig(hidden_dim=12, reduction_ratio=2.0),
            top_mlp=MlpConfig(hidden_units=(16, 8)),
        ),
        task=CLICK,
    )


def test_the_light_net_names_the_outputs() -> None:
    assert parse_recorded("rocket_launching") == RocketLaunchingConfig(
        input="all",
        share_mlp=MlpConfig(hidden_units=(24,), use_bn=True),
        light_mlp=MlpConfig(hidden_units=(16, 8)),
        booster_mlp=MlpConfig(hidden_units=(32, 16, 8)),
        task=TaskConfig(name="light", num_class=2, losses=(Loss.SOFTMAX_CROSS_ENTROPY,)),
    )


def test_experts_and_towers_are_read() -> None:
    model = parse_recorded("mmoe")
    assert isinstance(model, MmoeModelConfig)
    assert model.mmoe == MmoeConfig(
        expert_mlp=MlpConfig(hidden_units=(24, 12)), num_expert=3, gate_mlp=MlpConfig(hidden_units=(8,))
    )
    assert [tower.task.name for tower in model.tasks] == ["ctr", "cvr", "stay"]
    assert model.tasks[1].mlp is None
    assert model.tasks[2] == TaskTowerConfig(
        task=TaskConfig(name="stay", losses=(Loss.L2,)),
        mlp=MlpConfig(hidden_units=(12, 6), activation="nn.Sigmoid"),
    )


def test_extraction_networks_are_read() -> None:
    model = parse_recorded("ple")
    assert isinstance(model, PleConfig)
    assert model.extractions == (
        ExtractionConfig(
            task_experts=2,
            task_expert_mlp=MlpConfig(hidden_units=(16, 12)),
            shared_experts=3,
            shared_expert_mlp=MlpConfig(hidden_units=(20, 12)),
        ),
        ExtractionConfig(
            task_experts=1,
            task_expert_mlp=MlpConfig(hidden_units=(10,)),
            shared_experts=2,
            shared_expert_mlp=MlpConfig(hidden_units=(10,)),
        ),
    )


def test_the_last_network_may_have_no_shared_experts_of_any_width() -> None:
    other_width = (_SHARED, _SHARED.replace("10", "9"))
    model = parse_recorded("ple", ("share_num: 2", "share_num: 0"), other_width)
    assert isinstance(model, PleConfig)
    assert model.extractions[1].shared_experts == 0


def test_a_network_needs_no_name() -> None:
    assert parse_recorded("ple", ('network_name: "l1"', "")) == parse_recorded("ple")


def test_tasks_may_have_names_that_weights_cannot_have() -> None:
    model = parse_recorded("mmoe", (_MMOE_TASK, 'tower_name: "apply"'))
    assert isinstance(model, MmoeModelConfig)
    assert model.tasks[1].task.name == "apply"


@pytest.mark.parametrize(
    ("family", "old", "new", "problem"),
    [
        ("dcn_v1", "hidden_units: 32", "hidden_units: 0", r"dcn_v1\.deep: hidden_units are empty"),
        ("dcn_v1", "deep {\n      hidden_units: 32\n      hidden_units: 16\n    }", "", r"fields: .*v1.deep"),
        ("dcn_v1", "group_type: DEEP", "group_type: SEQUENCE", "dcn_v1 reads the first group"),
        ("dcn_v1", '"user_income"', '"user_incom"', "no feature is named user_incom"),
        ("dcn_v2", "low_rank: 8", "low_rank: 0", "low_rank is 0"),
        ("mask_net", "n_mask_blocks: 2", "n_mask_blocks: 0", "n_mask_blocks is 0"),
        ("mask_net", "reduction_ratio: 2.0", "reduction_ratio: 0", "ratio is 0 and aggregation_dim 0"),
        ("mask_net", "reduction_ratio: 2.0", "reduction_ratio: 0.01", "0.01 of a width of 72 is below 1"),
        ("mask_net", _TOP, "", "it has no top_mlp"),
        ("rocket_launching", _LOSS, "losses { l2_loss {} } metrics", "num_class is 2"),
        (
            "rocket_launching",
            f"num_class: 2\n  {_LOSS}",
            "losses { l2_loss {} } metrics",
            "gives no logits, which the light net learns",
        ),
        ("mmoe", "num_expert: 3", "num_expert: 0", "num_expert is 0"),
        ("mmoe", _MMOE_TASK, 'tower_name: "ctr"', "two tasks are named ctr"),
        ("mmoe", _MMOE_TASK, 'tower_name: ""', "a task has no name"),
        ("mmoe", "num_class: 2", "num_class: 1", "task cvr: num_class is 1"),
        ("mmoe", '"click_seq__item_id"', '"click_seq__dur"', "it names click_seq__dur twice"),
        ("ple", "expert_num_per_task: 1\n      share_num: 2", "expert_num_per_task: 0", "l2: .* are both 0"),
        ("ple", _SHARED, _SHARED.replace("10", "9"), "l2: .* a width of 10 and share_expert_net of 9"),
        ("ple", "hidden_units: 20\n        hidden_units: 12", "hidden_units: 0", r"l1\.share_expert_net"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(family: str, old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        parse_recorded(family, (old, new))


def test_tasks_that_are_not_there_are_missed() -> None:
    text = (FIXTURES / "mmoe" / "pipeline.config").read_text()
    with pytest.raises(InvalidPipelineConfig, match="task_towers: there are none"):
        parse_recorded("mmoe", (text[text.index("    task_towers {") :], "  }\n}\n"))


@pytest.mark.parametrize("family", ["dcn_v1", "dcn_v2", "mask_net", "rocket_launching", "ple", "dc2vr"])
def test_an_unknown_activation_is_refused(family: str) -> None:
    with pytest.raises(UnsupportedConfig, match=f"model_config.{family}.*activation 'nn.Nope' is not known"):
        parse_recorded(family, ("hidden_units:", 'activation: "nn.Nope" hidden_units:'))
