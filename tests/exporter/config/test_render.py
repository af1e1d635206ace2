"""The texts of an artifact describe the view that was packaged, and can be read again."""

import json
from dataclasses import replace

import pytest

from exporter.config.parse import parse_pipeline_config
from exporter.config.render import render_fg_json, render_model_acc, render_pipeline_config
from exporter.config.schema import Feature, TowerConfig
from exporter.options.layout import Layout
from exporter.options.tables import Tables
from exporter.spec import Mode, TowerName
from exporter.towers.view import published_tower, tower_configs
from tests.exporter.config.conftest import FIXTURES


def _towers(text: str) -> dict[TowerName, TowerConfig]:
    return {tower.name: tower for tower in tower_configs(parse_pipeline_config(text), None)}


def _as_published(feature: Feature) -> Feature:
    return replace(feature, view_of=None)


@pytest.mark.parametrize("name", [TowerName.USER, TowerName.ITEM])
def test_a_rendered_config_describes_its_tower_again(text: str, name: TowerName) -> None:
    tower = _towers(text)[name]
    again = published_tower(render_pipeline_config(tower), name)
    assert again.view == tower.view
    assert again.pipeline.features == tuple(_as_published(feature) for feature in tower.pipeline.features)
    assert again.pipeline.groups == tower.pipeline.groups
    assert again.pipeline.model == tower.pipeline.model


def test_rendering_what_was_rendered_changes_nothing(text: str) -> None:
    rendered = render_pipeline_config(_towers(text)[TowerName.ITEM])
    assert render_pipeline_config(published_tower(rendered, TowerName.ITEM)) == rendered


def test_the_item_tower_is_written_scalar(text: str) -> None:
    rendered = render_pipeline_config(_towers(text)[TowerName.ITEM])
    assert 'feature_name: "video_id"' in rendered
    assert "value_dim: 1" in rendered
    assert 'default_value: "0"' in rendered
    assert "sequence_feature" not in rendered
    assert "user_id" not in rendered


def test_a_scalar_feature_names_the_table_it_was_trained_with(text: str) -> None:
    one_group = text.replace('embedding_name: "video_id_emb"', "")
    rendered = render_pipeline_config(_towers(one_group)[TowerName.ITEM])
    assert 'embedding_name: "cand_seq__video_id_emb"' in rendered


def test_everything_else_of_the_config_stays(text: str) -> None:
    rendered = render_pipeline_config(_towers(text)[TowerName.USER])
    assert 'train_input_path: "data/train.parquet"' in rendered
    assert "num_position_buckets: 128" in rendered
    assert "cand_seq__video_id" not in rendered[rendered.index("feature_configs") :]


def test_fg_json_of_the_item_tower_is_scalar(text: str) -> None:
    assert json.loads(render_fg_json(_towers(text)[TowerName.ITEM])) == {
        "features": [
            {
                "feature_type": "id_feature",
                "feature_name": "video_id",
                "default_value": "0",
                "expression": "item:video_id",
                "value_type": "string",
                "need_prefix": False,
                "num_buckets": 2000,
                "value_dim": 1,
            }
        ]
    }


def test_a_scalar_number_keeps_its_width_and_normalizer(text: str) -> None:
    price = 'feature_name: "price" expression: "item:price" value_dim: 2 normalizer: "method=log10"'
    edited = text.replace(
        'sequence_name: "cand_seq"', f'sequence_name: "cand_seq" features {{ raw_feature {{ {price} }} }}'
    ).replace(
        '"cand_seq__video_id"\n    group', '"cand_seq__video_id" feature_names: "cand_seq__price"\n    group'
    )
    blocks = json.loads(render_fg_json(_towers(edited)[TowerName.ITEM]))["features"]
    assert blocks[1] == {
        "feature_type": "raw_feature",
        "feature_name": "price",
        "default_value": "0",
        "expression": "item:price",
        "value_type": "float",
        "value_dim": 2,
        "normalizer": "method=log10",
    }


def test_fg_json_puts_a_sequences_features_into_its_block(text: str) -> None:
    blocks = json.loads(render_fg_json(_towers(text)[TowerName.USER]))["features"]
    [sequence] = [block for block in blocks if "sequence_name" in block]
    assert sequence["sequence_name"] == "uih_seq"
    assert sequence["sequence_pk"] == "user:uih_seq"
    assert (sequence["sequence_length"], sequence["sequence_delim"]) == (96, "|")
    assert [member["feature_name"] for member in sequence["features"]] == [
        "video_id",
        "action_weight",
        "watch_time",
        "action_timestamp",
    ]


@pytest.mark.parametrize(
    ("fields", "buckets"),
    [
        ("hash_bucket_size: 9", {"hash_bucket_size": 9}),
        (
            'vocab_list: ["a"] default_value: "x"',
            {"vocab_list": ["x", "<OOV>", "a"], "default_bucketize_value": 1},
        ),
        (
            'vocab_list: ["a"] default_bucketize_value: 0',
            {"vocab_list": ["a"], "default_bucketize_value": 0},
        ),
        (
            'vocab_dict { key: "a" value: 2 } default_value: "x"',
            {"vocab_dict": {"a": 2, "x": 0}, "default_bucketize_value": 1},
        ),
    ],
)
def test_fg_json_says_how_a_raw_id_becomes_a_row(text: str, fields: str, buckets: dict[str, object]) -> None:
    blocks = json.loads(render_fg_json(_towers(text.replace("num_buckets: 500", fields, 1))[TowerName.USER]))
    assert buckets.items() <= blocks["features"][0].items()


def test_fg_json_of_a_standalone_sequence_says_so_itself(text: str) -> None:
    fields = 'feature_name: "t" expression: "user:t" sequence_length: 5 sequence_delim: ","'
    times = f"sequence_raw_feature {{ {fields} }}"
    edited = text.replace("feature_configs {", f"feature_configs {{ {times} }} feature_configs {{", 1)
    edited = edited.replace('"uih_seq__action_timestamp"', '"t"')
    blocks = json.loads(render_fg_json(_towers(edited)[TowerName.USER]))["features"]
    [block] = [block for block in blocks if block.get("feature_name") == "t"]
    assert block["feature_type"] == "sequence_raw_feature"
    assert (block["sequence_length"], block["sequence_delim"], block["default_value"]) == (5, ",", "0")


def test_fg_json_holds_the_features_that_others_are_made_of() -> None:
    text = (FIXTURES / "deepfm" / "pipeline.config").read_text()
    made = (
        'id_feature { feature_name: "first" expression: "user:x" stub_type: true }',
        'combo_feature { feature_name: "second" expression: "feature:first" expression: "user:y" '
        "hash_bucket_size: 9 }",
        'id_feature { feature_name: "unread" expression: "user:z" num_buckets: 3 }',
    )
    entries = "".join(f"feature_configs {{ {each} }}\n" for each in made)
    text = text.replace('"user:user_id"', '"feature:second"').replace(
        "model_config {", f"{entries}model_config {{"
    )
    tower = _towers(text)[TowerName.MODEL]
    written = {block["feature_name"]: block for block in json.loads(render_fg_json(tower))["features"]}
    assert written["first"]["stub_type"] is True
    assert written["second"]["expression"] == ["feature:first", "user:y"]
    assert set(written) - {"first", "second"} == {feature.name for feature in tower.pipeline.features}
    again = published_tower(render_pipeline_config(tower), TowerName.MODEL)
    assert json.loads(render_fg_json(again)) == json.loads(render_fg_json(tower))


def _acc(
    tower: TowerConfig, mode: Mode, layout: Layout = Layout.SLIPWAY, tables: object = None
) -> dict[str, str]:
    chosen = Tables.model_validate(tables or {})
    text = render_model_acc(tower, mode=mode, layout=layout, tables=chosen, max_batch_size=256)
    acc: dict[str, str] = json.loads(text)
    return acc


def test_model_acc_holds_the_switches_as_strings(text: str) -> None:
    assert _acc(_towers(text)[TowerName.ITEM], Mode.UNIFIED) == {
        "SPARSE_INT64": "1",
        "QUANT_EMB": "0",
        "ENABLE_AOT": "2",
        "MAX_EXPORT_BATCH_SIZE": "256",
    }


def test_model_acc_claims_two_stages_only_where_the_loader_can_load_them() -> None:
    tower = _ranking("dlrm_hstu")
    assert _acc(tower, Mode.TWO_STAGE, Layout.TORCHEASYREC)["ENABLE_AOT"] == "1"
    assert "ENABLE_AOT" not in _acc(tower, Mode.TWO_STAGE)
    assert "ENABLE_AOT" not in _acc(tower, Mode.UNIFIED, Layout.TRITON)


def test_model_acc_of_a_ranking_model_names_the_sequence_of_candidates() -> None:
    assert _acc(_ranking("dlrm_hstu"), Mode.TWO_STAGE)["cand_seq_pk"] == "cand_seq"


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({}, {"QUANT_EMB": "0"}),
        ({"dtype": "fp32"}, {"QUANT_EMB": "0"}),
        ({"dtype": "int8"}, {"QUANT_EMB": "INT8", "QUANT_EC_EMB": "INT8"}),
        ({"dtypes": {"video_id_emb": "fp16"}}, {"QUANT_EMB": "0", "QUANT_EC_EMB": "FP16"}),
        ({"dtypes": {"user_id_emb": "int4"}}, {}),  # one of several pooled tables: no word says that
    ],
)
def test_model_acc_says_how_tables_are_quantised(tables: dict[str, object], expected: dict[str, str]) -> None:
    acc = _acc(_ranking("dlrm_hstu"), Mode.UNIFIED, tables=tables)
    assert {name: word for name, word in acc.items() if name.startswith("QUANT")} == expected


def _ranking(model: str) -> TowerConfig:
    [tower] = tower_configs(parse_pipeline_config((FIXTURES / model / "pipeline.config").read_text()), None)
    return tower


def test_a_ranking_model_reads_its_published_config_back() -> None:
    config = parse_pipeline_config((FIXTURES / "dlrm_hstu" / "pipeline.config").read_text())
    [tower] = tower_configs(config, None)
    published = published_tower(render_pipeline_config(tower), TowerName.MODEL)
    assert published.pipeline.features == tower.pipeline.features
    assert published.pipeline.model == tower.pipeline.model
