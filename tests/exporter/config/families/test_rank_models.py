"""Ranking models over groups of features: what their messages say, and what they need of groups."""

import pytest

from exporter.config.blocks.dense_and_sparse import DenseAndSparse
from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.config.blocks.wukong import WukongLayerConfig
from exporter.config.families.rank.deepfm import DeepFmConfig
from exporter.config.families.rank.dlrm import DlrmConfig
from exporter.config.families.rank.multi_tower import MultiTowerConfig
from exporter.config.families.rank.multi_tower_din import MultiTowerDinConfig, TowerMlpConfig
from exporter.config.families.rank.wide_and_deep import WideAndDeepConfig
from exporter.config.families.rank.wukong import WukongConfig
from exporter.config.families.rank.xdeepfm import XDeepFmConfig
from exporter.config.family import FamilyConfig
from exporter.config.parse import parse_pipeline_config
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from exporter.spec import TowerName
from tests.exporter.config.conftest import FIXTURES

TASK = TaskConfig(losses=(Loss.BINARY_CROSS_ENTROPY,))
_DENSE_GROUP = 'group_name: "dense"'
_DENSE_MLP = "dense_mlp {\n      hidden_units: 16\n      hidden_units: 8\n    }"
_SEQUENCE = 'sequence_groups { feature_names: "clicks" } sequence_encoders { pooling_encoder {} }'
_CLICKS = """feature_configs { sequence_id_feature { feature_name: "clicks" expression: "user:clicks"
    num_buckets: 9 embedding_dim: 8 } }"""


def parse(family: str, *edits: tuple[str, str]) -> FamilyConfig:
    """The recorded config with pairs of (old, new) text replaced, the first occurrence of each."""
    text = (FIXTURES / family / "pipeline.config").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return parse_pipeline_config(text).model


def mlp(*hidden_units: int, **options: object) -> MlpConfig:
    return MlpConfig(hidden_units=hidden_units, **options)  # type: ignore[arg-type]  # the options of each type


def test_wide_and_deep_is_read() -> None:
    deep = mlp(32, 16, use_ln=True)
    assert parse("wide_and_deep") == WideAndDeepConfig(deep=deep, final=mlp(8), task=TASK)


def test_deepfm_is_read() -> None:
    tanh = mlp(16, 8, activation="nn.Tanh")
    assert parse("deepfm") == DeepFmConfig(deep=mlp(32, 16), final=tanh, fm="fm", task=TASK)


def test_deepfm_multiplies_the_deep_features_where_there_is_no_group_fm() -> None:
    text = (FIXTURES / "deepfm" / "pipeline.config").read_text()
    for name in ("user_income", "ui_lookup", "ui_expr"):  # of another width
        text = text.replace(f'feature_names: "{name}"', "")
    model = parse_pipeline_config(text.replace('group_name: "fm"', 'group_name: "other"')).model
    assert isinstance(model, DeepFmConfig)
    assert model.fm == "deep"
    assert [model.reads(TowerName.MODEL, group) for group in ("wide", "deep", "other")] == [True, True, False]


def test_a_final_mlp_may_be_left_out() -> None:
    final = 'final {\n      hidden_units: 16\n      hidden_units: 8\n      activation: "nn.Tanh"\n    }'
    model = parse("deepfm", (final, ""))
    assert isinstance(model, DeepFmConfig)
    assert model.final is None


def test_xdeepfm_is_read() -> None:
    assert parse("xdeepfm") == XDeepFmConfig(
        wide_dim=8, interaction_layers=(6, 5, 4), deep=mlp(24, 12), final=mlp(16, 8), task=TASK
    )


def test_dlrm_is_read() -> None:
    inputs = DenseAndSparse(sparse="sparse", dense_mlp=mlp(16, 8))
    model = DlrmConfig(inputs=inputs, appends_sparse=True, final=mlp(24, 12), task=TASK)
    assert parse("dlrm") == model
    assert [model.reads(TowerName.MODEL, group) for group in ("dense", "sparse", "x")] == [True, True, False]


def test_a_group_that_is_not_called_dense_is_not_read() -> None:
    model = parse("dlrm", (_DENSE_GROUP, 'group_name: "other"'))
    assert isinstance(model, DlrmConfig)
    assert model.inputs == DenseAndSparse(sparse="sparse", dense_mlp=None)
    assert not model.reads(TowerName.MODEL, "other")


@pytest.mark.parametrize("name", ["dense", "all_of_them"])
def test_an_only_group_is_the_sparse_one_whatever_its_name(name: str) -> None:
    text = (FIXTURES / "wukong" / "pipeline.config").read_text()
    start = text.rindex("  feature_groups {")
    end = text.index("  losses {")
    text = (text[:start] + text[end:]).replace('group_name: "sparse"', f'group_name: "{name}"')
    model = parse_pipeline_config(text).model
    assert isinstance(model, WukongConfig)
    assert model.inputs == DenseAndSparse(sparse=name, dense_mlp=None)


def test_wukong_is_read() -> None:
    layers = (
        WukongLayerConfig(linear_vectors=3, product_vectors=4, compressed=5, mlp=mlp(16)),
        WukongLayerConfig(linear_vectors=2, product_vectors=3, compressed=4, mlp=mlp(16, 12)),
    )
    inputs = DenseAndSparse(sparse="sparse", dense_mlp=mlp(12, 8))
    assert parse("wukong") == WukongConfig(inputs=inputs, layers=layers, final=mlp(16), task=TASK)


def test_wukong_compresses_to_sixteen_unless_it_says_otherwise() -> None:
    model = parse("wukong", ("compressed_feature_num: 5", ""))
    assert isinstance(model, WukongConfig)
    assert [layer.compressed for layer in model.layers] == [16, 4]


def test_multi_tower_is_read() -> None:
    towers = {"user": mlp(24, 12), "item": mlp(16, use_bn=True), "cross": mlp(32, 16, activation="Dice")}
    assert parse("multi_tower") == MultiTowerConfig(
        deep_towers=tuple(TowerMlpConfig(group=group, mlp=tower) for group, tower in towers.items()),
        final=mlp(24, 8),
        task=TASK,
    )


@pytest.mark.parametrize(("family", "widths"), [("multi_tower", (24, 8)), ("multi_tower_din", (32, 16))])
def test_towers_may_be_joined_without_an_mlp(family: str, widths: tuple[int, int]) -> None:
    final = "final {{\n      hidden_units: {}\n      hidden_units: {}\n    }}".format(*widths)
    model = parse(family, (final, ""))
    assert isinstance(model, MultiTowerDinConfig)
    assert model.final is None


@pytest.mark.parametrize(
    ("family", "old", "new", "problem"),
    [
        ("wide_and_deep", 'group_name: "deep"', 'group_name: "d"', "needs feature group deep, for its deep"),
        ("wide_and_deep", 'group_name: "wide"', 'group_name: "w"', "needs feature group wide, for its wide"),
        ("wide_and_deep", "group_type: WIDE", "group_type: SEQUENCE", "wide: group_type is SEQUENCE"),
        ("wide_and_deep", "hidden_units: 32\n      hidden_units: 16", "", "deep: hidden_units are empty"),
        ("deepfm", 'group_name: "fm"', 'group_name: "f"', "multiplies them, as there is no group fm"),
        ("deepfm", 'feature_names: "item_author"', 'feature_names: "ui_expr"', r"fm: .* ui_expr 1"),
        ("deepfm", 'activation: "nn.Tanh"', 'activation: "nn.Tan"', "final: activation 'nn.Tan' is not"),
        ("xdeepfm", "cin_layer_size: 6", "cin_layer_size: 0", "cin_layer_size is empty or holds a 0"),
        ("xdeepfm", "group_type: WIDE", "group_type: DEEP", "4 wide, and wide_embedding_dim is 8"),
        ("xdeepfm", "wide_embedding_dim: 8", "wide_embedding_dim: 0", "4 wide, and wide_embedding_dim is 0"),
        ("xdeepfm", 'group_name: "wide"', 'group_name: "w"', "needs feature group wide, for its interaction"),
        ("dlrm", 'group_name: "sparse"', 'group_name: "s"', "needs feature group sparse, for its"),
        ("dlrm", _DENSE_MLP, "", "it has no dense_mlp, which its group dense goes through"),
        ("dlrm", _DENSE_MLP, _DENSE_MLP.replace("8", "9"), "9 wide, and the features of group sparse 8"),
        ("wukong", 'feature_names: "item_price"', 'feature_names: "item_vec"', "sparse: .* item_vec 3"),
        ("wukong", 'group_name: "sparse"', 'group_name: "s"', "needs feature group sparse"),
        ("wukong", "hidden_units: 12\n      hidden_units: 8", "hidden_units: 7", "last layer is 7 wide"),
        ("wukong", "lcb_feature_num: 3", "lcb_feature_num: 0", r"wukong_layers\[0\]: lcb_feature_num is 0"),
        ("wukong", "fmb_feature_num: 3", "fmb_feature_num: 0", r"wukong_layers\[1\]: fmb_feature_num is 0"),
        ("wukong", "_feature_num: 5", "_feature_num: 0", r"wukong_layers\[0\]: compressed_feature_num is 0"),
        ("multi_tower", 'input: "user"', 'input: "users"', "multi_tower needs feature group users"),
        ("multi_tower", 'input: "user"', 'input: "item"', "two towers read group item"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(family: str, old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        parse(family, (old, new))


@pytest.mark.parametrize("group", ["dense", "sparse"])
@pytest.mark.parametrize("family", ["dlrm", "wukong"])
def test_vectors_of_encoders_are_refused(family: str, group: str) -> None:
    edits = (
        (f'group_name: "{group}"', f'group_name: "{group}" {_SEQUENCE}'),
        ("feature_configs", f"{_CLICKS} feature_configs"),
    )
    with pytest.raises(InvalidPipelineConfig, match=f"{group}: it has sequence encoders"):
        parse(family, *edits)


def test_one_feature_makes_no_pair() -> None:
    text = (FIXTURES / "dlrm" / "pipeline.config").read_text()
    groups, model = text.index("  feature_groups {"), text.index("  dlrm {")
    only = 'feature_groups { group_name: "g" group_type: DEEP feature_names: "user_id" } '
    losses = "losses { binary_cross_entropy {} } "
    head = text[:groups] + only + losses
    with pytest.raises(InvalidPipelineConfig, match="one feature, which makes no pair"):
        parse_pipeline_config(head + text[model:].replace("final {", "arch_with_sparse: false final {", 1))
    model_with_sparse = parse_pipeline_config(head + text[model:]).model
    assert isinstance(model_with_sparse, DlrmConfig)
    assert model_with_sparse.appends_sparse


@pytest.mark.parametrize("family", ["deepfm", "dlrm", "multi_tower", "wide_and_deep", "wukong", "xdeepfm"])
def test_a_loss_of_other_models_is_refused(family: str) -> None:
    loss = ("binary_cross_entropy {", "softmax_cross_entropy {")
    with pytest.raises(InvalidPipelineConfig, match="does not go with softmax"):
        parse(family, loss)
    with pytest.raises(UnsupportedConfig, match="a loss of another kind"):
        parse(family, ("binary_cross_entropy {\n    }", ""))
