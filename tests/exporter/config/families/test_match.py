"""dssm, dat and mind: every field is read, and what TorchEasyRec could not run is refused at submit."""

from dataclasses import replace

import pytest

from exporter.config.blocks.match_towers import DeepTowerConfig, Similarity
from exporter.config.blocks.mlp import MlpConfig
from exporter.config.families.match.dat import DatConfig
from exporter.config.families.match.dssm import DssmConfig
from exporter.config.families.match.mind import CapsuleConfig, MindConfig, MindUserConfig, RoutingStart
from exporter.config.parse import parse_pipeline_config
from exporter.errors import InvalidPipelineConfig
from tests.exporter.config.conftest import FIXTURES

_RELU = MlpConfig(hidden_units=(32, 24))
_CONCAT_MLP = "concat_mlp {\n        hidden_units: 32\n        hidden_units: 24\n"
_WIDE_MLP = "hidden_units: 32\n        hidden_units: 24\n        activation"


def parsed(family: str, *edits: tuple[str, str]) -> DssmConfig | MindConfig:
    """The recorded config of a family, with the first occurrence of each old text replaced."""
    text = (FIXTURES / family / "pipeline.config").read_text()
    head, _, model = text.partition("model_config {")
    for old, new in edits:
        assert old in model
        model = model.replace(old, new, 1)
    config = parse_pipeline_config(f"{head}model_config {{{model}").model
    assert isinstance(config, DssmConfig | MindConfig)
    return config


def capsules(*edits: tuple[str, str]) -> CapsuleConfig:
    model = parsed("mind", *edits)
    assert isinstance(model, MindConfig)
    return model.user.capsules


def test_dssm_is_read() -> None:
    assert parsed("dssm") == DssmConfig(
        user=DeepTowerConfig(inputs=("user",), mlp=MlpConfig(hidden_units=(48, 24))),
        item=DeepTowerConfig(
            inputs=("item",),
            mlp=MlpConfig(hidden_units=(32, 24), activation="nn.LeakyReLU(negative_slope=0.2)"),
        ),
        output_dim=16,
        similarity=Similarity.COSINE,
    )


def test_dat_reads_two_groups_per_tower() -> None:
    assert parsed("dat") == DatConfig(
        user=DeepTowerConfig(inputs=("user", "user_augment"), mlp=_RELU),
        item=DeepTowerConfig(inputs=("item", "item_augment"), mlp=_RELU),
        output_dim=16,
        similarity=Similarity.COSINE,
    )


def test_mind_is_read() -> None:
    projecting = MlpConfig(hidden_units=(32, 16), use_bn=True)
    assert parsed("mind") == MindConfig(
        user=MindUserConfig(
            input="user",
            history_input="hist",
            user_mlp=projecting,
            history_mlp=replace(projecting, bias=False),
            capsules=CapsuleConfig(
                max_k=4,
                max_seq_len=24,
                high_dim=12,
                squash_pow=pytest.approx(0.2),  # type: ignore[arg-type]  # a number to compare with
                routing_start=RoutingStart.ZEROS,
            ),
            concat_mlp=replace(_RELU, use_bn=True),
        ),
        item=DeepTowerConfig(inputs=("item",), mlp=replace(_RELU, use_bn=True)),
        output_dim=16,
        similarity=Similarity.COSINE,
    )


def test_what_is_not_written_has_torcheasyrecs_defaults() -> None:
    defaults = capsules(
        ("max_k: 4", ""), ("num_iters: 3", ""), ("squash_pow: 0.2", ""), ('routing_init_method: "zeros"', "")
    )
    assert defaults == CapsuleConfig(max_k=5, max_seq_len=24, high_dim=12)


@pytest.mark.parametrize("similarity", Similarity)
def test_the_similarity_is_read(similarity: Similarity) -> None:
    assert parsed("mind", ("similarity: COSINE", f"similarity: {similarity}")).similarity is similarity


@pytest.mark.parametrize("width", [0, -1])
def test_an_output_dim_of_nothing_is_no_projection(width: int) -> None:
    assert parsed("dssm", ("output_dim: 16", f"output_dim: {width}")).output_dim == 0


def test_an_mlp_without_layers_is_none() -> None:
    edit = ("mlp {\n        hidden_units: 48\n        hidden_units: 24\n", "mlp {\n")
    assert parsed("dssm", edit).user.mlp is None  # type: ignore[union-attr]  # a dssm


def test_the_history_mlp_may_be_left_out() -> None:
    whole = (
        "hist_seq_mlp {\n        hidden_units: 32\n        hidden_units: 16\n        use_bn: true\n      }"
    )
    model = parsed("mind", (whole, "user_seq_combine: CONCAT"))
    assert isinstance(model, MindConfig)
    assert model.user.history_mlp is None


def test_what_torcheasyrec_does_not_read_of_an_mlp_that_projects_is_ignored() -> None:
    model = parsed("mind", ("use_bn: true", "use_bn: true use_ln: true bias: false"))
    assert isinstance(model, MindConfig)
    assert model.user.user_mlp == MlpConfig(hidden_units=(32, 16), use_bn=True)


@pytest.mark.parametrize("field", ["max_k: 4", "max_seq_len: 24", "high_dim: 12", "num_iters: 3"])
def test_a_capsule_size_of_0_is_refused(field: str) -> None:
    name = field.split(":")[0]
    with pytest.raises(InvalidPipelineConfig, match=f"capsule_config: {name} is 0"):
        capsules((field, f"{name}: 0"))


def test_an_unknown_start_of_routing_is_refused() -> None:
    with pytest.raises(InvalidPipelineConfig, match="routing_init_method is 'ones'"):
        capsules(('"zeros"', '"ones"'))


def test_a_negative_scale_is_refused_unless_every_interest_is_valid() -> None:
    with pytest.raises(InvalidPipelineConfig, match="routing_logits_scale is -1"):
        capsules(("max_k: 4", "max_k: 4 routing_logits_scale: -1"))
    assert capsules(("max_k: 4", "max_k: 4 routing_logits_scale: -1 const_caps_num: true")).const_caps_num


@pytest.mark.parametrize(
    ("family", "edit", "problem"),
    [
        ("dssm", ('input: "user"', 'input: "users"'), "dssm needs feature group users, for the user"),
        (
            "dat",
            ('augment_input: "item_augment"', 'augment_input: "none"'),
            "feature group none, for the item",
        ),
        ("dat", ('augment_input: "user_augment"', 'augment_input: "user"'), "are both user"),
        ("mind", ('history_input: "hist"', 'history_input: "user"'), "the user's history needs SEQUENCE"),
        ("mind", ('input: "item"', 'input: "hist"'), "the item needs DEEP"),
        (
            "mind",
            (
                'feature_names: "click_seq__item_id"\n    feature_names: "click_seq__author"\n    '
                'feature_names: "click_seq__tags"\n    feature_names: "click_seq__dur"',
                'feature_names: "user_id"',
            ),
            "none of its features is a sequence",
        ),
    ],
)
def test_groups_are_checked(family: str, edit: tuple[str, str], problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        parsed(family, edit)


def test_towers_of_one_width_need_no_projection() -> None:
    assert parsed("dssm", ("output_dim: 16", "output_dim: 0")).output_dim == 0


@pytest.mark.parametrize(
    ("family", "edits", "widths"),
    [
        ("dssm", [(_WIDE_MLP, _WIDE_MLP.replace("24", "23"))], "user 24, item 23"),
        ("dat", [("hidden_units: 32\n        hidden_units: 24\n", "")], "user 49, item 24"),
        ("mind", [(_CONCAT_MLP, "concat_mlp {")], "user 28, item 24"),
    ],
)
def test_towers_that_are_not_projected_end_in_one_width(
    family: str, edits: list[tuple[str, str]], widths: str
) -> None:
    with pytest.raises(InvalidPipelineConfig, match=widths):
        parsed(family, ("output_dim: 16", "output_dim: 0"), *edits)


def test_towers_may_pool_tables_of_one_name_differently() -> None:
    """Each tower has tables of its own."""
    text = (FIXTURES / "dssm_inner" / "pipeline.config").read_text()
    other = text.replace('feature_name: "item_tags"', 'feature_name: "item_tags" pooling: "mean"')
    assert parse_pipeline_config(other).feature("user_tags").pooling == "sum"
    assert parse_pipeline_config(other).feature("item_tags").pooling == "mean"
