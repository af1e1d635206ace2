"""Names of RTP have one underscore between those of a sequence and of a feature in it, as the groups say."""

import json
import re

import pytest

from exporter.config.features.feature_messages import name_joint
from exporter.config.message import read_message
from exporter.config.parse import parse_pipeline_config
from exporter.config.render import render_fg_json, render_pipeline_config
from exporter.config.schema import PipelineConfig
from exporter.dims.plan import plan_dims
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from exporter.spec import TowerName
from exporter.towers.view import published_tower, training_tower
from tests.exporter.config.conftest import FIXTURES

TEXT = (FIXTURES / "dlrm_hstu" / "pipeline.config").read_text()
RTP = re.sub(r"(uih_seq|cand_seq)__", r"\1_", TEXT).replace('embedding_name: "video_id_emb"', "", 1)


def parsed(text: str = RTP) -> PipelineConfig:
    return parse_pipeline_config(text)


def test_features_columns_tensors_and_tables_have_one_underscore() -> None:
    pipeline = parsed()
    names = {feature.name for feature in pipeline.features if feature.grouped}
    assert {"uih_seq_video_id", "cand_seq_query_time"} <= names
    assert not any("__" in name for name in names)
    table = pipeline.feature("uih_seq_video_id").table
    assert table is not None and table.name == "uih_seq_video_id_emb"
    inputs = [tensor.name for tensor in plan_dims(pipeline.features, max_batch_size=8).inputs]
    assert "uih_seq_video_id.values" in inputs


def test_apart_from_names_nothing_changes() -> None:
    def renamed(pipeline: PipelineConfig) -> list[tuple[str, ...]]:
        return [tuple(name.replace("seq__", "seq_") for name in group.features) for group in pipeline.groups]

    assert renamed(parsed(TEXT)) == renamed(parsed())
    assert parsed(TEXT).model == parsed().model


def test_a_published_config_is_read_with_the_same_names() -> None:
    tower = training_tower(parsed(), TowerName.MODEL)
    again = published_tower(render_pipeline_config(tower), TowerName.MODEL)
    assert again.pipeline.features == tower.pipeline.features
    assert again.pipeline.groups == tower.pipeline.groups


@pytest.mark.parametrize(
    ("groups", "joint"),
    [
        ('feature_names: "s__f"', "__"),
        ('feature_names: "s_f"', "_"),
        ('sequence_groups { feature_names: "s_f" }', "_"),
        ('feature_names: "other"', "__"),
        ('feature_names: "s_g"', "__"),  # the name of a standalone feature
    ],
)
def test_the_groups_tell_which_names_are_meant(groups: str, joint: str) -> None:
    members = 'features { id_feature { feature_name: "f" } } features { id_feature { feature_name: "g" } }'
    text = f"""
        feature_configs {{ sequence_feature {{ sequence_name: "s" {members} }} }}
        feature_configs {{ sequence_id_feature {{ feature_name: "s_g" }} }}
        model_config {{ feature_groups {{ group_name: "x" {groups} }} }}
    """
    assert name_joint(read_message(text, "c")) == joint


def test_names_of_both_kinds_in_one_config_are_refused() -> None:
    with pytest.raises(InvalidPipelineConfig, match="no feature is named cand_seq_query_time"):
        parsed(TEXT.replace('"cand_seq__query_time"', '"cand_seq_query_time"'))


def test_fg_json_is_what_rtps_feature_generator_reads() -> None:
    blocks = json.loads(render_fg_json(training_tower(parsed(), TowerName.MODEL)))["features"]
    user = next(block for block in blocks if block.get("feature_name") == "user_id")
    assert user["gen_val_type"] == "lookup" and user["gen_key_type"] == "mod"
    assert user["hash_bucket_size"] == 500 and "num_buckets" not in user
    assert (user["shared_name"], user["embedding_dimension"]) == ("user_id_emb", 16)
    history = next(block for block in blocks if block.get("sequence_name") == "uih_seq")
    assert history["sequence_table"] == "item"
    video, weight = (
        next(each for each in history["features"] if each["feature_name"] == name)
        for name in ("video_id", "action_weight")
    )
    assert video["shared_name"] == "uih_seq_video_id_emb"
    assert weight["gen_val_type"] == weight["gen_key_type"] == "idle"
    assert user["value_dimension"] == 0 and "value_dim" not in user


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (("num_buckets: 500", 'vocab_list: ["a"]'), "user_id: .* has no vocab_list"),
        (
            (
                "feature_configs {",
                'feature_configs { expr_feature { feature_name: "e" } }\nfeature_configs {',
            ),
            "expr_feature e: .* has no such feature",
        ),
    ],
)
def test_features_that_rtp_cannot_compute_are_refused(edit: tuple[str, str], named: str) -> None:
    parsed(TEXT.replace(*edit, 1))
    with pytest.raises(UnsupportedConfig, match=named):
        parsed(RTP.replace(*edit, 1))
