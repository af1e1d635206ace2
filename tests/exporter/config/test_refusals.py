"""Every refusal of a config names the model, group or feature, and the line to change."""

import re
from pathlib import Path

import pytest

from exporter.errors import InvalidPipelineConfig
from exporter.spec import ExportSpec
from exporter.towers.plan import plan_towers

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"

# Model, text of its config, what stands there instead, text of the line that is named, words of the error.
REFUSED = [
    # features
    ("multi_tower_din", "num_buckets: 500", "", 'id_feature {', "id_feature user_id"),
    ("multi_tower_din", "embedding_dim: 16", "embedding_dim: 0", "embedding_dim: 0", "user_id"),
    ("multi_tower_din", "num_buckets: 10\n", "num_buckets: 10 zch { zch_size: 4 }\n", "zch {", "user_level"),
    ("multi_tower_din", "num_buckets: 200", "num_buckets: 201", '"author_emb"', "author_emb"),
    ("multi_tower_din", 'sequence_name: "click_seq"', 'sequence_name: ""', '_name: ""', "item_id, author"),
    ("multi_tower_din", "sequence_length: 20", "sequence_length: 99999999", "length: 99", "99999999"),
    ("multi_tower_din", 'feature_name: "user_vec"', 'feature_name: "user_age"', "raw_feature {", "user_age"),
    ("multi_tower_din", 'pooling: "mean"', 'pooling: "max"', 'pooling: "max"', "click_seq__tags"),
    ("multi_tower_din", 'feature_name: "user_vec"', "", "raw_feature {", "[5].raw_feature.feature_name"),
    ("multi_tower_din", '"author_emb"', '"training"', '"training"', "author: 'training' cannot be the"),
    ("multi_tower_din", '"author_emb"', '"a.b"', 'id_feature {', "item_author: 'a.b' cannot be the name of"),
    # groups
    ("multi_tower_din", 'names: "user_level"', 'names: "user_levle"', '"user_levle"', "feature group deep"),
    ("multi_tower_din", 'names: "user_level"', 'names: "user_id"', '"user_id"', "feature group deep"),
    ("multi_tower_din", 'group_name: "buy"', 'group_name: "click"', "feature_groups {", "click"),
    ("multi_tower_din", "group_type: SEQUENCE", "group_type: DEEP", '"click_seq__dur"', "click"),
    ("dbmtl", 'input: "click_din"', 'input: "click_dni"', 'input: "click_dni"', "click_dni"),
    ("dbmtl", 'pooling_type: "sum"', 'pooling_type: "max"', 'pooling_type: "max"', "pooling_encoder"),
    # models
    ("multi_tower_din", 'input: "click"', 'input: "clikc"', 'input: "clikc"', "clikc"),
    ("multi_tower_din", "hidden_units: 24", "hidden_units: 0", "hidden_units: ", "towers: deep"),
    ("multi_tower_din", '"Dice"', '"Dcie"', '"Dcie"', "Dcie"),
    ("multi_tower_din", "binary_cross_entropy {", "softmax_cross_entropy {", "model_config {", "num_class"),
    ("dbmtl", 'relation_tower_names: "ctr"', 'relation_tower_names: "crt"', '"crt"', "task cvr"),
    ("dbmtl", "num_class: 2", "num_class: 1", "num_class: 1", "task cvr"),
    ("dbmtl", "num_expert: 3", "num_expert: 99999", "num_expert: 99999", "num_expert"),
    ("dbmtl", "use_bn: true", "use_bn: true use_ln: true", "use_bn: true", "bottom_mlp"),
    ("dbmtl", "export_config {", 'export_config { mixed_precision: "FP8"', 'mixed_precision: "FP8"', "FP8"),
    ("wukong", "hidden_units: 8\n", "hidden_units: 9\n", "hidden_units: 12", "dense_mlp"),
    ("wukong", 'group_name: "sparse"', 'group_name: "spars"', "wukong {", "sparse"),
    ("wukong", "fmb_feature_num: 4", "fmb_feature_num: 0", "fmb_feature_num: 0", "fmb_feature_num"),
    ("deepfm", 'group_name: "deep"', 'group_name: "depth"', "deep {", "feature group deep"),
    ("deepfm", "group_type: WIDE", "group_type: SEQUENCE", "group_type: SEQUENCE", "wide"),
    ("xdeepfm", "cin_layer_size: 5", "cin_layer_size: 0", "cin_layer_size: ", "cin"),
    ("pepnet", "ppnet_gamma: 2.5", "ppnet_gamma: inf", "ppnet_gamma: inf", "is inf, which"),
    ("mask_net", "num_heads: 2", "num_heads: 3", "multihead_attn_dim: 8", "num_heads"),
    ("mask_net", "n_mask_blocks: 2", "n_mask_blocks: 0", "n_mask_blocks: 0", "n_mask_blocks"),
    ("ple", 'tower_name: "stay"', 'tower_name: "ctr"', "task_towers {", "two tasks are named ctr"),
    ("pepnet", 'group_name: "all"', 'group_name: "al"', "pepnet {", "all"),
    ("mmoe", "num_expert: 3", "num_expert: 0", "expert_mlp {", "num_expert"),
    ("dc2vr", 'intervention_tower_names: "ctr"', 'intervention_tower_names: "crt"', '"crt"', "crt"),
    ("dssm_v2", 'input: "item"', 'input: "items"', '"items"', "items"),
    ("tdm", "windows_len: 5", "windows_len: 0", "windows_len: ", "windows_len"),
    ("sid_rqvae", "codebook: 8", "codebook: 0", "codebook: ", "codebook"),
    ("sid_rqvae", "topk: 3", "topk: 900", "topk: 900", "topk"),
    ("ultra_hstu", 'name: "uih_click"\n', 'name: "uih_view"\n', "feature_groups {", "uih_view"),
    # text
    ("dbmtl", "num_expert: 3", "num_experts: 3", "num_experts: 3", 'no field named "num_experts"'),
]  # fmt: skip


@pytest.mark.parametrize(("model", "old", "new", "line", "words"), REFUSED)
def test_a_refusal_names_the_line(model: str, old: str, new: str, line: str, words: str) -> None:
    text = (FIXTURES / model / "pipeline.config").read_text()
    assert old in text
    edited = text.replace(old, new, 1)
    with pytest.raises(InvalidPipelineConfig) as raised:
        plan_towers(ExportSpec(config=edited, checkpoint_uri="c", output_uri="o"), edited)
    error = raised.value
    place = re.match(r"config:(\d+)[: ]", error.message)
    assert place, error.message
    assert error.where.startswith(place[0][:-1])
    assert words in error.message
    assert line in edited.splitlines()[int(place[1]) - 1]
    assert error.hint
