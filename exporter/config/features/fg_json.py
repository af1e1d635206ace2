"""Write a feature's block of fg.json, the config of TorchEasyRec's feature generator for raw values."""

from typing import assert_never

from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue

from exporter.config.features.feature_files import path_in_config
from exporter.config.features.feature_messages import FeatureSource
from exporter.config.features.fg_entries import (
    FgBlock,
    bucket_entries,
    normalizer_entry,
    number_entries,
    separator_entry,
    value_type_entry,
)
from exporter.config.features.read_features import effective_value_dim
from exporter.config.features.table_rows import (
    SEQUENCE_DEFAULT_VALUE,
    NumberMessage,
    WordMessage,
    effective_default,
)
from exporter.config.pb.feature_kinds_pb2 import (
    BoolMaskFeature,
    CombineFeature,
    ComboFeature,
    CustomFeature,
    ExprFeature,
    IdFeature,
    KvDotProduct,
    LookupFeature,
    MatchFeature,
    OverlapFeature,
    RawFeature,
    TextNormalizeOption,
    TokenizeFeature,
)

# Flags of a text's normalisation, whose sum the feature generator takes as `parameter`.
_FLAGS: dict[int, int] = {
    TextNormalizeOption.TEXT_LOWER2UPPER: 2,
    TextNormalizeOption.TEXT_UPPER2LOWER: 4,
    TextNormalizeOption.TEXT_SBC2DBC: 8,
    TextNormalizeOption.TEXT_CHT2CHS: 16,
    TextNormalizeOption.TEXT_FILTER: 32,
    TextNormalizeOption.TEXT_SPLITCHRS: 512,
}


_OneBlockMessage = WordMessage | NumberMessage | CombineFeature


def fg_json(source: FeatureSource) -> list[FgBlock]:
    """Return the feature's blocks; if it is part of a sequence, they belong into that sequence's `features`.

    A feature has one block, except a lookup_feature of several values, which is looked up as text and then
    split, and a text that is normalised before it is split into tokens.
    """
    message = source.message
    if isinstance(message, TokenizeFeature):
        blocks = _tokenize_blocks(source, message)
    else:
        block = _block(source, message)
        if message.HasField("stub_type"):
            block["stub_type"] = message.stub_type
        if source.parent is not None and message.sequence_fields:
            block["sequence_fields"] = list(message.sequence_fields)
        blocks = [block]
        if isinstance(message, LookupFeature) and message.value_dim > 1:
            blocks = _looked_up_as_text(source, message, block)
    if source.is_sequence and not source.is_sequence_of_tokens:
        blocks = [each | _as_sequence(source, each) for each in blocks]
    return blocks


def _as_sequence(source: FeatureSource, block: FgBlock) -> FgBlock:
    """Return the entries that a block has because it is, or is part of, a sequence."""
    entries: FgBlock = {"default_value": block.get("default_value") or SEQUENCE_DEFAULT_VALUE}
    if source.parent is None:
        message = source.message
        entries |= {"sequence_delim": message.sequence_delim, "sequence_length": message.sequence_length}
        if not isinstance(message, BoolMaskFeature | CustomFeature):
            entries["feature_type"] = f"sequence_{block['feature_type']}"
    return entries


def fg_sequence(source: FeatureSource, members: list[JsonValue]) -> FgBlock:
    """Return the block of the sequence around `source`, with `members` as its features."""
    assert source.parent is not None
    return {
        "sequence_name": source.parent.sequence_name,
        "sequence_length": source.parent.sequence_length,
        "sequence_delim": source.parent.sequence_delim,
        "sequence_pk": source.parent.sequence_pk or f"user:{source.parent.sequence_name}",
        "features": members,
    }


def _block(source: FeatureSource, message: _OneBlockMessage) -> FgBlock:  # noqa: C901, PLR0911  one per kind
    match message:
        case IdFeature():
            return _id_block(source, message)
        case ComboFeature() | BoolMaskFeature():
            return _combination_block(source, message)
        case RawFeature():
            return _raw_block(source, message)
        case ExprFeature():
            return _expr_block(source, message)
        case LookupFeature():
            return _lookup_block(source, message)
        case MatchFeature():
            return _match_block(source, message)
        case OverlapFeature():
            return _overlap_block(message)
        case KvDotProduct():
            return _kv_block(source, message)
        case CombineFeature():
            return _combine_block(source, message)
        case CustomFeature():
            return _custom_block(source, message)
        case _:
            assert_never(message)


def _id_block(source: FeatureSource, message: IdFeature) -> FgBlock:
    block: FgBlock = {
        "feature_type": "id_feature",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "expression": message.expression,
        "value_type": "string",
        "need_prefix": False,
    }
    block |= separator_entry(message.separator) | bucket_entries(source, message)
    if message.weighted:
        block["weighted"] = True
    block["value_dim"] = effective_value_dim(source)
    return block | value_type_entry(message)


def _combination_block(source: FeatureSource, message: ComboFeature | BoolMaskFeature) -> FgBlock:
    """Return the block of a feature of several columns: combinations of their values, or masked values."""
    is_combo = isinstance(message, ComboFeature)
    block: FgBlock = {
        "feature_type": "combo_feature" if is_combo else "bool_mask_feature",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "expression": list(message.expression),
        "value_dim": message.value_dim,
    }
    if isinstance(message, ComboFeature):
        block |= {"value_type": "string", "need_prefix": False}
    else:
        block |= value_type_entry(message)
    return block | separator_entry(message.separator) | bucket_entries(source, message)


def _raw_block(source: FeatureSource, message: RawFeature) -> FgBlock:
    block: FgBlock = {
        "feature_type": "raw_feature",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "expression": message.expression,
        "value_type": "float",
    }
    if message.value_dim > 1:
        block |= separator_entry(message.separator)
        block["value_dim"] = message.value_dim
    return block | number_entries(message)


def _expr_block(source: FeatureSource, message: ExprFeature) -> FgBlock:
    block: FgBlock = {
        "feature_type": "expr_feature",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "expression": message.expression,
        "variables": list(message.variables),
        "value_type": "float",
    }
    if message.HasField("fill_missing"):
        block["fill_missing"] = message.fill_missing
    if message.HasField("value_dim"):
        block["value_dim"] = message.value_dim
    return block | separator_entry(message.separator) | number_entries(message)


def _lookup_block(source: FeatureSource, message: LookupFeature) -> FgBlock:
    block: FgBlock = {
        "feature_type": "lookup_feature",
        "feature_name": message.feature_name,
        "map": message.map,
        "key": message.key,
        "default_value": effective_default(source),
    }
    buckets = bucket_entries(source, message)
    value_type = value_type_entry(message).get("value_type", "string" if buckets else "float")
    discrete = message.need_discrete or value_type == "string"
    block |= {
        "value_type": value_type,
        "needDiscrete": discrete,
        "needKey": message.need_key,
        "combiner": "" if discrete else message.combiner.lower(),
    }
    if not block["combiner"]:
        block["value_dim"] = effective_value_dim(source)
    return (
        block
        | separator_entry(message.separator)
        | (buckets or number_entries(message))
        | normalizer_entry(message)
    )


def _looked_up_as_text(source: FeatureSource, message: LookupFeature, looked_up: FgBlock) -> list[FgBlock]:
    """Return two blocks: a stub that looks up the text of all values, and its split into numbers."""
    text = f"{message.feature_name}__lookup"
    default = effective_default(source)
    numbers: FgBlock = {
        "feature_type": "raw_feature",
        "feature_name": message.feature_name,
        "default_value": default,
        "expression": f"feature:{text}",
        "separator": message.value_separator,
        "value_dim": message.value_dim,
        "value_type": "float",
    }
    numbers |= number_entries(message)
    if source.parent is not None:
        numbers["sequence_fields"] = [text]
    kept = ("feature_type", "map", "key", "needKey", "sequence_fields")
    lookup = {name: value for name, value in looked_up.items() if name in kept}
    lookup |= {
        "feature_name": text,
        "default_value": message.value_separator.join([default] * message.value_dim),
        "value_type": "string",
        "value_dim": 1,
        "needDiscrete": True,
        "combiner": "",
        "stub_type": True,
    }
    return [lookup, numbers]


def _match_block(source: FeatureSource, message: MatchFeature) -> FgBlock:
    buckets = bucket_entries(source, message)
    discrete = message.need_discrete or bool(buckets)
    block: FgBlock = {
        "feature_type": "match_feature",
        "feature_name": message.feature_name,
        "user": message.nested_map,
        "category": message.pkey,
        "item": message.skey,
        "matchType": "multihit" if "ALL" in (message.pkey, message.skey) else "hit",
        "default_value": effective_default(source),
        "value_type": "string" if buckets else "float",
        "needDiscrete": discrete,
        "show_category": message.show_pkey,
        "show_item": message.show_skey,
    }
    if discrete:
        block["value_dim"] = effective_value_dim(source)
    block |= (
        separator_entry(message.separator) | (buckets or number_entries(message)) | normalizer_entry(message)
    )
    return block | value_type_entry(message)


def _overlap_block(message: OverlapFeature) -> FgBlock:
    block: FgBlock = {
        "feature_type": "overlap_feature",
        "feature_name": message.feature_name,
        "query": message.query,
        "title": message.title,
        "method": message.method,
        "value_type": "float",
        "separator": message.separator,
    }
    return block | number_entries(message)


def _kv_block(source: FeatureSource, message: KvDotProduct) -> FgBlock:
    block: FgBlock = {
        "feature_type": "kv_dot_product",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "query": message.query,
        "document": message.document,
    }
    if message.HasField("kv_delimiter"):
        block["kv_delimiter"] = message.kv_delimiter
    if message.boundaries:
        block["boundaries"] = list(message.boundaries)
    return block | separator_entry(message.separator)


def _combine_block(source: FeatureSource, message: CombineFeature) -> FgBlock:
    block: FgBlock = {
        "feature_type": "combine_feature",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "expression": message.expression,
        "value_type": "float",
        "need_prefix": False,
        "combiner": message.combiner.lower(),
    }
    if message.value_map:
        block["value_map"] = dict(sorted(message.value_map.items()))
    if message.HasField("num_buckets"):
        block |= {"num_buckets": message.num_buckets, "value_type": "int64"}
        block |= normalizer_entry(message)
    else:
        block |= number_entries(message)
    if message.HasField("num_buckets") or message.boundaries:
        block["value_dim"] = 1
    return block | separator_entry(message.separator)


def _custom_block(source: FeatureSource, message: CustomFeature) -> FgBlock:
    buckets = bucket_entries(source, message)
    block: FgBlock = {
        "feature_type": "custom_feature",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "operator_name": message.operator_name,
        "operator_lib_file": path_in_config(message, message.operator_lib_file),
        "is_op_thread_safe": message.is_op_thread_safe,
        "expression": list(message.expression),
        "value_type": "float",
    }
    block |= MessageToDict(message.operator_params)
    if buckets:
        block["value_type"] = "int64" if "num_buckets" in buckets else "string"
    if source.is_sequence:
        block["is_sequence"] = True
    block["value_dim"] = effective_value_dim(source)
    return (
        block
        | separator_entry(message.separator)
        | normalizer_entry(message)
        | (buckets or number_entries(message))
    )


def _tokenize_blocks(source: FeatureSource, message: TokenizeFeature) -> list[FgBlock]:
    """Return the blocks of the text's normalisation, if there is one, and of its tokens."""
    tokens: FgBlock = {
        "feature_type": "tokenize_feature",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "vocab_file": path_in_config(message, message.vocab_file),
        "expression": message.expression,
        "tokenizer_type": message.tokenizer_type,
        "output_type": "word_id",
    }
    if message.HasField("stub_type"):
        tokens["stub_type"] = message.stub_type
    members: FgBlock = {}
    if source.parent is not None and message.sequence_fields:
        members = {"sequence_fields": list(message.sequence_fields)}
    if not message.HasField("text_normalizer"):
        return [tokens | members]
    normalised = f"{message.feature_name}__text_norm"
    tokens["expression"] = f"feature:{normalised}"
    if source.parent is not None:
        tokens["sequence_fields"] = [normalised]
    text: FgBlock = {
        "feature_type": "text_normalizer",
        "feature_name": normalised,
        "expression": message.expression,
        "is_gbk_input": False,
        "is_gbk_output": False,
        "stub_type": True,
    }
    return [text | _normalisation(message) | members, tokens]


def _normalisation(message: TokenizeFeature) -> FgBlock:
    """Return the settings of a text's normalisation; those that are flags are added up."""
    settings = message.text_normalizer
    block: FgBlock = {}
    if settings.HasField("max_length"):
        block["max_length"] = settings.max_length
    if settings.stop_char_file:
        block["stop_char_file"] = path_in_config(message, settings.stop_char_file)
    if settings.norm_options:
        block["parameter"] = sum(_FLAGS.get(option, 0) for option in settings.norm_options)
        if TextNormalizeOption.TEXT_REMOVE_SPACE in settings.norm_options:
            block["remove_space"] = True
    return block
