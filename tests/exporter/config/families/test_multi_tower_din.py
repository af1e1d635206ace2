"""multi_tower_din: what its message says, and what it needs of groups."""

import pytest

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.config.families.rank.multi_tower_din import MultiTowerDinConfig, TowerMlpConfig
from exporter.config.parse import parse_pipeline_config
from exporter.errors import ExportError, InvalidPipelineConfig
from tests.exporter.config.conftest import FIXTURES

_TOWERS = '    towers {\n      input: "deep"'
_BUY = 'feature_names: "item_id"\n    feature_names: "buy_items"'
_DIN = '    din_towers {\n      input: "buy"'


def parse(*edits: tuple[str, str]) -> MultiTowerDinConfig:
    """The recorded config with pairs of (old, new) text replaced, the first occurrence of each."""
    text = (FIXTURES / "multi_tower_din" / "pipeline.config").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    model = parse_pipeline_config(text).model
    assert isinstance(model, MultiTowerDinConfig)
    return model


def test_the_model_is_read() -> None:
    assert parse() == MultiTowerDinConfig(
        deep_towers=(TowerMlpConfig(group="deep", mlp=MlpConfig(hidden_units=(48, 24))),),
        din_towers=(
            TowerMlpConfig(group="click", mlp=MlpConfig(hidden_units=(32, 8))),
            TowerMlpConfig(group="buy", mlp=MlpConfig(hidden_units=(16,), activation="Dice")),
        ),
        final=MlpConfig(hidden_units=(32, 16)),
        task=TaskConfig(losses=(Loss.BINARY_CROSS_ENTROPY,)),
    )


def test_classes_and_losses_stand_beside_the_model() -> None:
    losses = ("binary_cross_entropy {", 'jrc_loss { session_name: "user_id"')
    task = parse(losses, ("multi_tower_din {", "num_class: 2 multi_tower_din {")).task
    assert task == TaskConfig(num_class=2, losses=(Loss.JRC,))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (_TOWERS, _TOWERS + " }" + _TOWERS.replace("deep", "click"), "towers: deep: it has no mlp"),
        (_TOWERS, f"{_TOWERS} mlp {{ hidden_units: 2 }} }} {_TOWERS}", "two towers read group deep"),
        (_TOWERS, _TOWERS.replace("deep", "wide"), "needs feature group wide, for one of its towers"),
        (_TOWERS, _TOWERS.replace("deep", "buy"), "group_type is SEQUENCE, but one of its towers needs DEEP"),
        (_DIN, _DIN.replace("buy", "deep"), "group_type is DEEP, but one of its din_towers needs SEQUENCE"),
        (_BUY, 'feature_names: "buy_items"', "needs a query"),
        (_BUY, 'feature_names: "item_id"', "needs a sequence"),
        (_BUY, f'{_BUY} feature_names: "user_id"', "32 wide"),
        ("binary_cross_entropy {", "softmax_cross_entropy {", "does not go with softmax"),
        ("losses {\n    binary_cross_entropy {\n    }\n  }", "", "it has no losses"),
        ('activation: "Dice"', 'activation: "Dicey"', "attn_mlp: activation 'Dicey' is not known"),
        ('activation: "Dice"', 'activation: "nn.PReLU(num_parameters=8)"', "for layers of width 8"),
    ],
)
def test_contradictions_are_refused(old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        parse((old, new))


def test_a_model_without_towers_is_refused() -> None:
    text = (FIXTURES / "multi_tower_din" / "pipeline.config").read_text()
    start = text.index("  multi_tower_din {")
    with pytest.raises(ExportError, match="no towers and no din_towers"):
        parse_pipeline_config(text[:start] + "multi_tower_din { final { hidden_units: 2 } } }")
