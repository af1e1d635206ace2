"""dssm_v2, tdm and the models of semantic ids: what is read, and what could not be trained is refused."""

import pytest

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.residual_quantizer import Distance, ResidualQuantizerConfig
from exporter.config.blocks.sequence_encoders import MultiWindowDinEncoderConfig
from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.config.families.match.dssm_v2 import DssmV2Config
from exporter.config.families.match.tdm import TdmConfig
from exporter.config.families.sid.sid_rqkmeans import SidRqkmeansConfig
from exporter.config.families.sid.sid_rqvae import PairConfig, SidRqvaeConfig
from exporter.config.family import FamilyConfig
from exporter.config.parse import parse_pipeline_config
from exporter.config.render import render_pipeline_config
from exporter.config.schema import PipelineConfig
from exporter.dtypes import Precision
from exporter.errors import InvalidPipelineConfig, InvalidSpec
from exporter.spec import ExportSpec, TowerName
from exporter.towers.plan import plan_export, plan_towers
from exporter.towers.view import published_tower, tower_configs
from tests.exporter.config.conftest import FIXTURES

_SPEC = {"config": "read elsewhere", "checkpoint_uri": "c", "output_uri": "o"}


def edited(family: str, *edits: tuple[str, str]) -> str:
    """The recorded config of a family, with the first occurrence in its model of each old text replaced."""
    head, _, model = (FIXTURES / family / "pipeline.config").read_text().partition("model_config {")
    for old, new in edits:
        assert old in model
        model = model.replace(old, new, 1)
    return f"{head}model_config {{{model}"


def pipeline(family: str, *edits: tuple[str, str]) -> PipelineConfig:
    return parse_pipeline_config(edited(family, *edits))


def parsed(family: str, *edits: tuple[str, str]) -> FamilyConfig:
    return pipeline(family, *edits).model


def test_tdm_is_read() -> None:
    assert parsed("tdm") == TdmConfig(
        item_group="seq",
        history=MultiWindowDinEncoderConfig(
            group="seq",
            attn_mlp=MlpConfig(hidden_units=(12,), activation="nn.PReLU"),
            windows=(1, 2, 5, 12),
        ),
        deep_groups=("deep",),
        final=MlpConfig(hidden_units=(32, 16), use_bn=True),
        task=TaskConfig(num_class=2, losses=(Loss.SOFTMAX_CROSS_ENTROPY,)),
    )


def test_sid_rqvae_is_read() -> None:
    assert parsed("sid_rqvae") == SidRqvaeConfig(
        input="deep",
        quantizer=ResidualQuantizerConfig(codebooks=(12, 8, 6), normalize_residuals=False, candidates=3),
        embed_dim=6,
        hidden_dims=(16, 10),
        pair=PairConfig(vector="pair", flag="pair_flag"),
    )


def test_sid_rqkmeans_is_read() -> None:
    assert parsed("sid_rqkmeans") == SidRqkmeansConfig(
        input="deep",
        quantizer=ResidualQuantizerConfig(codebooks=(10, 8, 6), normalize_residuals=False, candidates=2),
    )


def test_other_options_of_the_quantisers_are_read() -> None:
    model = parsed("sid_rqvae", ("embed_dim", 'normalize_residuals: true distance_type: "cosine" embed_dim'))
    assert isinstance(model, SidRqvaeConfig)
    assert (model.quantizer.normalize_residuals, model.quantizer.distance) == (True, Distance.COSINE)
    without = parsed("sid_rqkmeans", ("enabled: true", "enabled: false"), ("topk: 2", "topk: 99"))
    assert isinstance(without, SidRqkmeansConfig)
    assert without.quantizer.candidates == 0


def test_the_encoder_has_half_the_inputs_width_where_none_is_written() -> None:
    model = parsed("sid_rqvae", ("hidden_dims: 16", ""), ("hidden_dims: 10", ""))
    assert isinstance(model, SidRqvaeConfig)
    assert model.hidden_widths(13) == (6,)


def test_dssm_v2_has_the_towers_of_dssm_over_shared_tables() -> None:
    model = parsed("dssm_v2")
    assert isinstance(model, DssmV2Config)
    assert (model.user.inputs, model.item.inputs, model.output_dim) == (("user",), ("item",), 12)
    assert model.tables_are_shared


def test_the_embedding_of_tdm_reads_the_items_features_of_its_history_alone() -> None:
    [tower] = tower_configs(pipeline("tdm"), (TowerName.EMBEDDING,))
    [group] = tower.pipeline.groups
    assert group.features == ("item_id", "item_author", "item_ctr")
    published = published_tower(render_pipeline_config(tower), TowerName.EMBEDDING)
    assert published.pipeline.groups == tower.pipeline.groups
    assert [f.name for f in published.pipeline.features] == list(group.features)


def test_the_embedding_of_tdm_needs_rows_of_items_and_can_materialise_them() -> None:
    text = edited("tdm")
    with pytest.raises(InvalidSpec, match="the embedding tower needs item_input_uri"):
        plan_export(ExportSpec.model_validate(_SPEC), text)
    spec = ExportSpec.model_validate({**_SPEC, "item_input_uri": "i", "materialise_items": True})
    planned = {tower.name: tower.item_id_column for tower in plan_towers(spec, text)}
    assert planned == {TowerName.MODEL: None, TowerName.EMBEDDING: "item_id"}


@pytest.mark.parametrize("family", ["sid_rqvae", "sid_rqkmeans"])
def test_ids_are_computed_in_fp32_whatever_the_request_says(family: str) -> None:
    spec = ExportSpec.model_validate({**_SPEC, "precision": "bf16"})
    [tower] = plan_towers(spec, edited(family))
    assert tower.config.options.precision is Precision.FP32


def test_a_tower_that_a_family_lacks_is_refused() -> None:
    for family, lacking in (("dssm_v2", "embedding"), ("sid_rqvae", "embedding"), ("tdm", "item")):
        spec = ExportSpec.model_validate({**_SPEC, "towers": [lacking], "item_input_uri": "i"})
        with pytest.raises(InvalidSpec, match=f"{family} has no tower {lacking}"):
            plan_towers(spec, edited(family))


_PAIR = 'feature_names: "pair_emb"'
_SEQ = 'group_name: "seq"\n'


@pytest.mark.parametrize(
    ("family", "edit", "problem"),
    [
        ("dssm_v2", ('input: "user"', 'input: "users"'), "needs feature group users, for the user"),
        (
            "tdm",
            ("group_type: SEQUENCE", "group_type: JAGGED_SEQUENCE"),
            "needs a feature group of group_type SEQUENCE",
        ),
        ("tdm", ("windows_len: 1", "windows_len: 0"), "windows_len are empty or hold a 0"),
        (
            "tdm",
            ("group_type: DEEP", "group_type: JAGGED_SEQUENCE"),
            "a part of the final MLP's input needs DEEP",
        ),
        ("tdm", ("hidden_units: 32", "hidden_units: 0"), "model_config.tdm.final: hidden_units are empty"),
        ("tdm", ("num_class: 2", "num_class: 1"), "num_class is 1"),
        ("tdm", ('feature_names: "click_seq__dur"', ""), "its query is 17 wide and its sequence 16"),
        ("sid_rqvae", ("codebook: 12", "codebook: 0"), "codebook: it is empty or holds a 0"),
        ("sid_rqvae", ("topk: 3", "topk: 7"), "topk: it is 7, and the last codebook has 6 rows"),
        ("sid_rqvae", ("topk: 3", "topk: 0"), "topk: it is 0"),
        ("sid_rqvae", ("topk: 3", 'topk: 3 strategy: "beam"'), "strategy: it is 'beam'"),
        ("sid_rqvae", ("embed_dim: 6", 'embed_dim: 6 distance_type: "l1"'), "distance_type: it is 'l1'"),
        ("sid_rqvae", ("embed_dim: 6", "embed_dim: 0"), "embed_dim or one of hidden_dims is 0"),
        ("sid_rqvae", ("hidden_dims: 10", "hidden_dims: 0"), "embed_dim or one of hidden_dims is 0"),
        ("sid_rqvae", ("group_type: DEEP", "group_type: SEQUENCE"), "sid_rqvae reads the first group"),
        (
            "sid_rqvae",
            ('pair_feature_group: "pair"', 'pair_feature_group: "pairs"'),
            "needs feature group pairs, for pair_feature_group",
        ),
        (
            "sid_rqvae",
            (_PAIR, 'feature_names: "item_ctr"'),
            "it is 1 wide, and pair_feature_group must be 12",
        ),
        (
            "sid_rqvae",
            ('feature_names: "is_pair"', 'feature_names: "is_pair" feature_names: "item_ctr"'),
            "it is 2 wide, and pair_flag_feature_group must be 1",
        ),
        ("sid_rqkmeans", ('feature_names: "item_ctr"', 'feature_names: "item_ctrr"'), "item_ctrr"),
        ("sid_rqkmeans", ("codebook: 10", "codebook: 0"), "codebook: it is empty or holds a 0"),
        ("sid_rqkmeans", ("topk: 2", "topk: 7"), "the last codebook has 6 rows"),
    ],
)
def test_what_cannot_be_is_refused_by_name(family: str, edit: tuple[str, str], problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem) as raised:
        parsed(family, edit)
    assert raised.value.hint


def test_towers_of_dssm_v2_must_be_of_one_width_without_a_projection() -> None:
    edits = (("hidden_units: 16", "hidden_units: 18"), ("output_dim: 12", "output_dim: 0"))
    with pytest.raises(InvalidPipelineConfig, match="user 18, item 16"):
        parsed("dssm_v2", *edits)
