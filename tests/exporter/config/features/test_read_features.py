"""Feature messages to features: effective defaults, tables, refusals."""

import pytest

from exporter.config.blocks.dense_embedding import LinearEmbeddingConfig
from exporter.config.schema import (
    ROWS_OF_CHECKPOINT,
    DataGroup,
    FeatureKind,
    IdMapKind,
    Pooling,
    Sequence,
    TableConfig,
)
from exporter.dtypes import TableDtype
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from tests.exporter.config.conftest import ParseEdited


def _id(fields: str, kind: str = "id_feature") -> str:
    return f'{kind} {{ feature_name: "f" expression: "item:f" embedding_dim: 4 {fields} }}'


def _raw(fields: str, kind: str = "raw_feature") -> str:
    return f'{kind} {{ feature_name: "f" expression: "item:f" {fields} }}'


def _tokens(fields: str, kind: str = "tokenize_feature") -> str:
    needed = 'expression: "item:f" embedding_dim: 4 vocab_file: "tokenizer.json"'
    return f'{kind} {{ feature_name: "f" {needed} {fields} }}'


@pytest.mark.parametrize(
    ("fields", "rows"),
    [
        ("num_buckets: 7", 7),
        ("hash_bucket_size: 9", 9),
        ("hash_bucket_size: 9 num_buckets: 7", 9),
        ('num_buckets: 7 vocab_list: ["a", "b"]', 7),
        ('vocab_list: ["a", "b"]', 4),
        ('vocab_list: ["a", "b"] default_bucketize_value: 1', 2),
        ('vocab_dict { key: "a" value: 5 }', 6),
        ('vocab_dict { key: "a" value: 2 } vocab_dict { key: "b" value: 3 } default_value: "b"', 3),
    ],
)
def test_an_id_tables_rows_are_counted_as_training_does(
    parse_with_feature: ParseEdited, fields: str, rows: int
) -> None:
    assert parse_with_feature(_id(fields)).feature("f").table == TableConfig(name="f_emb", rows=rows, dim=4)


def test_boundaries_make_a_raw_feature_an_id_of_its_bucket(parse_with_feature: ParseEdited) -> None:
    feature = parse_with_feature(_raw("boundaries: [1, 2, 3] embedding_dim: 4")).feature("f")
    assert feature.table == TableConfig(name="f_emb", rows=4, dim=4)
    assert feature.kind is FeatureKind.RAW
    assert not feature.is_multivalued


def test_an_id_takes_any_number_of_values_but_one_in_a_sequence(parse_with_feature: ParseEdited) -> None:
    config = parse_with_feature(_id("num_buckets: 7"))
    assert config.feature("f").value_dim == 0
    assert config.feature("f").default_value == ""
    sub_feature = config.feature("uih_seq__video_id")
    assert (sub_feature.value_dim, sub_feature.default_value) == (1, "0")


def test_what_the_config_sets_is_taken(parse_with_feature: ParseEdited) -> None:
    feature = parse_with_feature(_id('num_buckets: 7 value_dim: 3 default_value: "5"')).feature("f")
    assert (feature.value_dim, feature.default_value) == (3, "5")


def test_a_grouped_feature_is_flattened(parse_edited: ParseEdited) -> None:
    feature = parse_edited().feature("uih_seq__action_timestamp")
    assert feature.bare_name == "action_timestamp"
    assert feature.sequence == Sequence(name="uih_seq", length=96, delim="|")
    assert feature.grouped


def test_a_grouped_features_own_table_has_the_flattened_name(parse_edited: ParseEdited) -> None:
    config = parse_edited(('embedding_name: "video_id_emb"', ""))
    table = config.feature("uih_seq__video_id").table
    assert table is not None
    assert table.name == "uih_seq__video_id_emb"


def test_a_standalone_sequence_is_a_sequence_of_its_own(parse_with_feature: ParseEdited) -> None:
    fields = 'num_buckets: 7 sequence_length: 50 sequence_delim: ","'
    feature = parse_with_feature(_id(fields, "sequence_id_feature")).feature("f")
    assert feature.sequence == Sequence(name="f", length=50, delim=",")
    assert not feature.grouped


def test_a_standalone_sequence_of_numbers_keeps_its_width(parse_with_feature: ParseEdited) -> None:
    feature = parse_with_feature(_raw("value_dim: 3", "sequence_raw_feature")).feature("f")
    assert feature.value_dim == 3
    assert feature.sequence == Sequence(name="f", length=0, delim=";")


def test_ids_of_a_row_are_pooled_as_the_config_says(parse_with_feature: ParseEdited) -> None:
    assert parse_with_feature(_id("num_buckets: 7")).feature("f").pooling is Pooling.SUM
    assert parse_with_feature(_id('num_buckets: 7 pooling: "mean"')).feature("f").pooling is Pooling.MEAN


@pytest.mark.parametrize("kind", ["id_feature", "sequence_id_feature"])
def test_a_table_is_kept_in_training_as_the_config_says(parse_with_feature: ParseEdited, kind: str) -> None:
    table = parse_with_feature(_id('num_buckets: 7 data_type: "FP16"', kind)).feature("f").table
    assert table == TableConfig(name="f_emb", rows=7, dim=4, dtype=TableDtype.FP16)


def test_a_table_without_a_width_is_invalid_only_where_a_group_reads_it(parse_edited: ParseEdited) -> None:
    unused = 'feature_configs { id_feature { feature_name: "unused" num_buckets: 7 } }\nfeature_configs {'
    table = parse_edited(("feature_configs {", unused)).feature("unused").table
    assert table is not None and table.dim == 0
    with pytest.raises(
        InvalidPipelineConfig, match="unused: embedding_dim is 0 or missing, and .* contextual"
    ):
        parse_edited(
            ("feature_configs {", unused),
            ('feature_names: "user_id"', 'feature_names: "user_id" feature_names: "unused"'),
        )


def test_null_rows_become_the_encoded_default(parse_with_feature: ParseEdited) -> None:
    assert parse_with_feature(_raw('fg_encoded_default_value: "1.5"')).feature("f").fill_value == "1.5"
    assert parse_with_feature(_raw('fg_encoded_default_value: ""')).feature("f").fill_value is None


@pytest.mark.parametrize(
    ("feature", "fill"),
    [
        (_raw("use_mask: true"), "0"),
        (_raw('use_mask: true default_value: "1.5"'), "1.5"),
        (_raw('use_mask: true default_value: "1.5" fg_encoded_default_value: "2"'), "2"),
        (_raw('use_mask: true fg_encoded_default_value: ""'), None),
        (_raw('use_mask: true normalizer: "method=log10"'), None),
        (_raw("use_mask: true boundaries: [1] embedding_dim: 4"), None),
        (_id('use_mask: true num_buckets: 7 default_value: "3"'), "3"),
        (_id("use_mask: true num_buckets: 7"), None),
        (_id('use_mask: true hash_bucket_size: 7 default_value: "3"'), None),
        (_id('use_mask: true num_buckets: 7 vocab_list: "a" default_value: "3"'), None),
        (_id('num_buckets: 7 default_value: "3"'), None),
    ],
)
def test_a_masked_feature_has_its_default_where_it_needs_no_generation(
    parse_with_feature: ParseEdited, feature: str, fill: str | None
) -> None:
    assert parse_with_feature(feature).feature("f").fill_value == fill


def test_values_of_one_element_are_split_as_the_data_config_says(parse_edited: ParseEdited) -> None:
    assert parse_edited().feature("user_id").separator == "\x03"
    edited = parse_edited(("data_config {", 'data_config { fg_encoded_multival_sep: ","'))
    assert edited.feature("user_id").separator == ","


@pytest.mark.parametrize(
    ("kind", "fields", "rows", "value_dim"),
    [
        ("combo_feature", "hash_bucket_size: 30", 30, 0),
        ("sequence_combo_feature", "hash_bucket_size: 30", 30, 1),
        ("bool_mask_feature", "num_buckets: 30", 30, 0),
        ("lookup_feature", "num_buckets: 30", 30, 1),
        ("lookup_feature", "boundaries: [1, 2]", 3, 1),
        ("lookup_feature", "", None, 1),
        ("lookup_feature", "value_dim: 4", None, 4),
        ("match_feature", 'vocab_list: "a" need_discrete: true', 4, 1),
        ("match_feature", "", None, 1),
        ("expr_feature", "boundaries: [1, 2]", 3, 1),
        ("expr_feature", "", None, 1),
        ("overlap_feature", "", None, 1),
        ("kv_dot_product", "boundaries: [1, 2]", 3, 1),
        ("combine_feature", "num_buckets: 30", 30, 1),
        ("combine_feature", "", None, 1),
        ("custom_feature", "num_buckets: 30 value_dim: 0", 30, 0),
        ("custom_feature", "hash_bucket_size: 30", 30, 1),
        ("custom_feature", "value_dim: 3", None, 3),
        ("custom_feature", "value_dim: 0", None, 1),
        ("sequence_custom_feature", "", None, 1),
        ("lookup_feature", "value_dim: 0", None, 1),
        ("match_feature", "value_dim: 3", None, 1),
        ("sequence_match_feature", "boundaries: [1, 2]", 3, 1),
        ("sequence_bool_mask_feature", "num_buckets: 30", 30, 1),
        ("sequence_overlap_feature", "", None, 1),
    ],
)
def test_every_kind_is_ids_of_a_table_or_numbers(
    parse_with_feature: ParseEdited, kind: str, fields: str, rows: int | None, value_dim: int
) -> None:
    feature = parse_with_feature(f'{kind} {{ feature_name: "f" embedding_dim: 4 {fields} }}').feature("f")
    assert feature.kind is FeatureKind(kind.removeprefix("sequence_"))
    assert feature.table == (TableConfig(name="f_emb", rows=rows, dim=4) if rows else None)
    assert feature.value_dim == value_dim


@pytest.mark.parametrize("policy", ["lfu {}", "lru { decay_exponent: 2 }", "distance_lfu {}"])
@pytest.mark.parametrize("kind", ["id_feature", "sequence_combo_feature", "lookup_feature", "match_feature"])
def test_zch_gives_a_map_of_its_size_whatever_evicts(
    parse_with_feature: ParseEdited, kind: str, policy: str
) -> None:
    zch = f"hash_bucket_size: 7 zch {{ zch_size: 30 {policy} }}"
    feature = parse_with_feature(f'{kind} {{ feature_name: "f" embedding_dim: 4 {zch} }}').feature("f")
    assert feature.table == TableConfig(name="f_emb", rows=30, dim=4, id_map=IdMapKind.ZCH)


def test_dense_embeddings_are_read_with_their_width(parse_with_feature: ParseEdited) -> None:
    autodis = "autodis { num_channels: 3 } embedding_dim: 4"
    feature = parse_with_feature(_raw(autodis)).feature("f")
    assert feature.dense_embedding is not None
    assert (feature.width, feature.looked_up_width) == (4, 1)
    assert feature.dense_embedding.key("f") == "autodis#4#3#0_800000#0_100000"
    vector = parse_with_feature(_raw("mlp {} embedding_dim: 4 value_dim: 3")).feature("f")
    assert vector.dense_embedding == LinearEmbeddingConfig(dim=4, value_dim=3)


@pytest.mark.parametrize(
    "fields", ["mlp {} boundaries: 1 embedding_dim: 4", "autodis { num_channels: 3 } boundaries: 1"]
)
def test_boundaries_win_over_a_dense_embedding(parse_with_feature: ParseEdited, fields: str) -> None:
    feature = parse_with_feature(_raw(f"{fields} embedding_dim: 4")).feature("f")
    assert feature.table is not None
    assert feature.dense_embedding is None


def test_a_dense_embedding_in_a_sequence_is_ignored(parse_with_feature: ParseEdited) -> None:
    config = 'sequence_raw_feature { feature_name: "f" expression: "user:f" embedding_dim: 4 mlp {} }'
    feature = parse_with_feature(config).feature("f")
    assert feature.dense_embedding is None
    assert feature.width == 1


@pytest.mark.parametrize(
    ("feature", "problem"),
    [
        (_raw("autodis { num_channels: 3 } embedding_dim: 4 value_dim: 2"), "autodis is for one number"),
        (_raw("autodis { num_channels: 0 } embedding_dim: 4"), "autodis needs channels"),
        (_raw("autodis { num_channels: 3 temperature: 0 } embedding_dim: 4"), "autodis needs channels"),
        (_raw("mlp {}"), "mlp has no width"),
        (
            'sequence_lookup_feature { feature_name: "f" map: "user:m" key: "k" mlp {} embedding_dim: 4 }',
            "mlp gives width 4 to a sequence of 1 numbers per element",
        ),
    ],
)
def test_an_impossible_dense_embedding_is_refused(
    parse_with_feature: ParseEdited, feature: str, problem: str
) -> None:
    with pytest.raises(InvalidPipelineConfig, match=f" f: {problem}"):
        parse_with_feature(feature)


def test_zch_without_a_policy_is_refused(parse_with_feature: ParseEdited) -> None:
    with pytest.raises(InvalidPipelineConfig, match=r" f: zch has no eviction policy"):
        parse_with_feature(_id("zch { zch_size: 10 }"))


@pytest.mark.parametrize(
    ("feature", "value_dim"),
    [
        (_id('vocab_file: "words.txt" default_bucketize_value: 1'), 0),
        (_tokens(""), 0),
        (_tokens("sequence_length: 9", "sequence_tokenize_feature"), 0),
        (_tokens("sequence_length: 9 tokens_as_sequence: true"), 1),
    ],
)
def test_a_file_leaves_the_rows_to_the_checkpoint(
    parse_with_feature: ParseEdited, feature: str, value_dim: int
) -> None:
    read = parse_with_feature(feature).feature("f")
    assert read.table == TableConfig(name="f_emb", rows=ROWS_OF_CHECKPOINT, dim=4)
    assert read.value_dim == value_dim


def test_a_given_size_goes_before_a_file(parse_with_feature: ParseEdited) -> None:
    feature = parse_with_feature(_id('vocab_file: "words.txt" num_buckets: 7')).feature("f")
    assert feature.table == TableConfig(name="f_emb", rows=7, dim=4)


def test_the_tokens_of_a_text_are_a_sequence_of_their_own(parse_edited: ParseEdited) -> None:
    tokens = f"features {{ {_tokens('tokens_as_sequence: true sequence_length: 9')} }}"
    config = parse_edited(("    features {", f"    {tokens}\n    features {{"))
    feature = next(feature for feature in config.features if feature.bare_name == "f")
    assert feature.sequence == Sequence(name=feature.name, length=9, delim="\x03")
    assert not feature.grouped


def test_sampled_features_are_of_another_data_group(parse_edited: ParseEdited) -> None:
    sampler = 'negative_sampler { attr_fields: "cand_seq__video_id" }'
    config = parse_edited(("force_base_data_group: true", sampler))
    assert config.feature("cand_seq__video_id").data_group is DataGroup.NEG
    assert config.feature("uih_seq__video_id").data_group is DataGroup.BASE
    forced = parse_edited(("force_base_data_group: true", f"force_base_data_group: true {sampler}"))
    assert forced.feature("cand_seq__video_id").data_group is DataGroup.BASE


def test_what_is_made_of_sampled_and_other_values_is_of_a_third_data_group(parse_edited: ParseEdited) -> None:
    expression = 'expr_feature { feature_name: "f" expression: "a+b" variables: ["user:a", "item:b"] }'
    config = parse_edited(
        ("force_base_data_group: true", 'negative_sampler { attr_fields: "b" }'),
        ("FG_NONE", "FG_DAG"),
        ("feature_configs {", f"feature_configs {{ {expression} }}\nfeature_configs {{"),
    )
    assert config.feature("f").data_group is DataGroup.CROSS_NEG


@pytest.mark.parametrize(
    ("arguments", "unknown"),
    [
        ("", 0.0),
        ("eval_initializer_args {}", 0.0),
        ("eval_initializer_args { value: 0.5 }", 0.5),
        ('eval_initializer_args { mode: "CONSTANT" value: 2 }', 2.0),
        ('initializer_args { mode: "NORMAL" } score_strategy: "LFU" init_table: "x"', 0.0),
        ("frequency_admission_strategy { threshold: 5 initializer_args { value: 3 } }", 0.0),
    ],
)
def test_dynamicemb_gives_a_map_with_a_row_of_unknown_ids(
    parse_with_feature: ParseEdited, arguments: str, unknown: float
) -> None:
    config = _id(f'num_buckets: 7 data_type: "FP16" dynamicemb {{ max_capacity: 10 {arguments} }}')
    table = parse_with_feature(config).feature("f").table
    expected = TableConfig(
        name="f_emb", rows=ROWS_OF_CHECKPOINT, dim=4, id_map=IdMapKind.DYNAMICEMB, unknown=unknown
    )
    assert table == expected


def test_dynamicemb_with_constraints_is_a_table_of_row_numbers(parse_with_feature: ParseEdited) -> None:
    constrained = 'dynamicemb { max_capacity: 10 } embedding_constraints { sharding_types: "row_wise" }'
    table = parse_with_feature(_id(f"num_buckets: 7 {constrained}")).feature("f").table
    assert table == TableConfig(name="f_emb", rows=10, dim=4)


def test_an_intermediate_of_feature_generation_is_no_feature(parse_with_feature: ParseEdited) -> None:
    config = parse_with_feature('id_feature { feature_name: "f" expression: "user:f" stub_type: true }')
    assert "f" not in [feature.name for feature in config.features]


def test_a_table_is_not_shared_by_row_numbers_and_keys(parse_edited: ParseEdited) -> None:
    dynamic = 'embedding_name: "t" dynamicemb { max_capacity: 9 }'
    with pytest.raises(InvalidPipelineConfig) as refused:
        parse_edited(
            ('"user:user_id"\n', f'"user:user_id" {dynamic}\n'),
            ('"user:user_active_degree"\n', '"user:user_active_degree" embedding_name: "t"\n'),
        )
    assert "the checkpoint's rows of width 16 in fp32, found by dynamicemb" in refused.value.message


@pytest.mark.parametrize("mode", ["NORMAL", "TRUNCATED_NORMAL", "UNIFORM", "DEBUG"])
def test_random_rows_of_unknown_ids_are_refused(parse_with_feature: ParseEdited, mode: str) -> None:
    dynamic = f'dynamicemb {{ max_capacity: 10 eval_initializer_args {{ mode: "{mode}" }} }}'
    with pytest.raises(UnsupportedConfig, match=rf" f: dynamicemb .* random rows by .* {mode}"):
        parse_with_feature(_id(dynamic))


def test_an_initializer_that_dynamicemb_lacks_is_refused(parse_with_feature: ParseEdited) -> None:
    dynamic = 'dynamicemb { max_capacity: 10 eval_initializer_args { mode: "ZEROS" } }'
    with pytest.raises(InvalidPipelineConfig, match=r" f: dynamicemb has no initializer 'ZEROS'"):
        parse_with_feature(_id(dynamic))


@pytest.mark.parametrize(
    ("feature", "named"),
    [
        (_id(""), "size of its table"),
        (_id("num_buckets: 0"), "num_buckets is 0"),
        (_id('vocab_file: "v"'), "default_bucketize_value"),
        (_tokens('tokenizer_type: "words"'), "tokenizer_type is 'words'"),
        (_tokens("tokens_as_sequence: true", "sequence_tokenize_feature"), "tokens_as_sequence"),
        (_id('vocab_list: ["a"] default_bucketize_value: 1'), "default_bucketize_value"),
        (_id('num_buckets: 7 pooling: "max"'), "pooling"),
        (_id('num_buckets: 7 data_type: "INT8"'), "f: data_type is 'INT8'"),
        (_raw("value_dim: 0"), "value_dim"),
        (_raw('sequence_delim: ""', "sequence_raw_feature"), "sequence_delim"),
        (
            'raw_feature { feature_name: "user_id" expression: "user:user_id" }',
            "two features are named user_id",
        ),
    ],
)
def test_a_feature_that_contradicts_itself_or_another_is_invalid(
    parse_with_feature: ParseEdited, feature: str, named: str
) -> None:
    with pytest.raises(InvalidPipelineConfig, match=named):
        parse_with_feature(feature)


def test_a_sequence_without_a_name_is_named_by_its_features(parse_edited: ParseEdited) -> None:
    with pytest.raises(InvalidPipelineConfig, match=r"sequence_feature of video_id, .* empty sequence_name"):
        parse_edited(('sequence_name: "uih_seq"', 'sequence_name: ""'))


def test_a_sequence_that_leaves_its_name_out_is_placed(parse_edited: ParseEdited) -> None:
    with pytest.raises(InvalidPipelineConfig, match=r"feature_configs\[6\].sequence_feature.sequence_name"):
        parse_edited(('sequence_name: "uih_seq"', ""))
