"""Blocks of fg.json for features that combine several columns or are looked up."""

import pytest
from google.protobuf import text_format

from exporter.config.features.feature_messages import feature_sources
from exporter.config.features.fg_entries import FgBlock
from exporter.config.features.fg_json import fg_json
from exporter.config.pb.pipeline_pb2 import EasyRecConfig


def _blocks(entry: str) -> list[FgBlock]:
    """The blocks of the only feature of a config."""
    config = text_format.Parse(f"feature_configs {{ {entry} }}", EasyRecConfig(), allow_unknown_field=False)
    [source] = feature_sources(config)
    return fg_json(source)


def test_a_combination_lists_its_columns() -> None:
    assert _blocks(
        'combo_feature { feature_name: "f" expression: ["user:a", "item:b"] hash_bucket_size: 9 }'
    ) == [
        {
            "feature_type": "combo_feature",
            "feature_name": "f",
            "default_value": "",
            "expression": ["user:a", "item:b"],
            "value_type": "string",
            "need_prefix": False,
            "value_dim": 0,
            "hash_bucket_size": 9,
        }
    ]


def test_a_looked_up_number_is_combined() -> None:
    assert _blocks('lookup_feature { feature_name: "f" map: "user:m" key: "item:k" combiner: "MAX" }') == [
        {
            "feature_type": "lookup_feature",
            "feature_name": "f",
            "map": "user:m",
            "key": "item:k",
            "default_value": "0",
            "value_type": "float",
            "needDiscrete": False,
            "needKey": False,
            "combiner": "max",
        }
    ]


def test_a_looked_up_word_is_not() -> None:
    [block] = _blocks('lookup_feature { feature_name: "f" map: "user:m" key: "item:k" num_buckets: 9 }')
    assert block.items() >= {"value_type": "string", "needDiscrete": True, "combiner": ""}.items()
    assert (block["num_buckets"], block["value_dim"]) == (9, 1)


def test_a_looked_up_vector_is_text_that_is_split() -> None:
    lookup, numbers = _blocks(
        'lookup_feature { feature_name: "f" map: "user:m" key: "item:k" value_dim: 3 normalizer: "n" }'
    )
    assert (lookup["feature_name"], lookup["default_value"], lookup["stub_type"]) == (
        "f__lookup",
        "0,0,0",
        True,
    )
    assert numbers == {
        "feature_type": "raw_feature",
        "feature_name": "f",
        "default_value": "0",
        "expression": "feature:f__lookup",
        "separator": ",",
        "value_dim": 3,
        "value_type": "float",
        "normalizer": "n",
    }


def test_an_expression_names_its_variables() -> None:
    [block] = _blocks(
        'expr_feature { feature_name: "f" expression: "a+b" variables: ["user:a", "item:b"] boundaries: 1.5 }'
    )
    assert block["variables"] == ["user:a", "item:b"]
    assert block["boundaries"] == [1.5]


@pytest.mark.parametrize(("key", "kind"), [("user:c", "hit"), ("ALL", "multihit")])
def test_a_match_says_what_it_hits(key: str, kind: str) -> None:
    [block] = _blocks(
        f'match_feature {{ feature_name: "f" nested_map: "user:m" pkey: "{key}" skey: "item:i" }}'
    )
    assert (block["matchType"], block["needDiscrete"], block["value_type"]) == (kind, False, "float")


def test_a_combined_feature_of_buckets_is_a_whole_number() -> None:
    [block] = _blocks('combine_feature { feature_name: "f" expression: "user:a" num_buckets: 9 }')
    assert (block["value_type"], block["num_buckets"], block["combiner"]) == ("int64", 9, "sum")


def test_a_standalone_sequence_of_any_kind_says_how_it_is_split() -> None:
    [block] = _blocks(
        "sequence_combo_feature { "
        'feature_name: "f" hash_bucket_size: 9 sequence_length: 5 sequence_delim: "," }'
    )
    assert block["feature_type"] == "sequence_combo_feature"
    assert (block["sequence_length"], block["sequence_delim"]) == (5, ",")
