"""Write a feature's block of fg.json, the config of TorchEasyRec's feature generator for raw values."""

from typing import assert_never

from pydantic import JsonValue

from exporter.config.features.feature_messages import FeatureSource
from exporter.config.features.read_features import dictionary_rows, effective_default, effective_value_dim
from exporter.config.pb.feature_kinds_pb2 import (
    BoolMaskFeature,
    CombineFeature,
    ComboFeature,
    ExprFeature,
    IdFeature,
    KvDotProduct,
    LookupFeature,
    MatchFeature,
    OverlapFeature,
    RawFeature,
)

FgBlock = dict[str, JsonValue]

_DEFAULT_SEPARATOR = "\x1d"
_OUT_OF_VOCABULARY = "<OOV>"
_LARGEST_HASH = 2**63 - 1
_BUCKET_OF_THE_UNKNOWN = 1  # default_bucketize_value where the config leaves it out


def fg_json(source: FeatureSource) -> list[FgBlock]:
    """Return the feature's blocks; if it is part of a sequence, they belong into that sequence's `features`.

    A feature has one block, except a lookup_feature of several values: it is looked up as text, then split.
    """
    block = _block(source)
    message = source.message
    if message.HasField("stub_type"):
        block["stub_type"] = message.stub_type
    if source.parent is not None and message.sequence_fields:
        block["sequence_fields"] = list(message.sequence_fields)
    blocks = [block]
    if isinstance(message, LookupFeature) and message.value_dim > 1:
        blocks = _looked_up_as_text(source, message, block)
    if source.is_sequence and source.parent is None:
        for each in blocks:
            each["feature_type"] = f"sequence_{each['feature_type']}"
            each["sequence_delim"] = message.sequence_delim
            each["sequence_length"] = message.sequence_length
    return blocks


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


def _block(source: FeatureSource) -> FgBlock:  # noqa: PLR0911  one per kind
    message = source.message
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
    block |= _separator(message.separator) | _buckets(source, message)
    if message.weighted:
        block["weighted"] = True
    block["value_dim"] = effective_value_dim(source)
    return block | _value_type(message)


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
        block |= _value_type(message)
    return block | _separator(message.separator) | _buckets(source, message)


def _raw_block(source: FeatureSource, message: RawFeature) -> FgBlock:
    block: FgBlock = {
        "feature_type": "raw_feature",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "expression": message.expression,
        "value_type": "float",
    }
    if message.value_dim > 1:
        block |= _separator(message.separator)
        block["value_dim"] = message.value_dim
    return block | _number(message)


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
    return block | _separator(message.separator) | _number(message)


def _lookup_block(source: FeatureSource, message: LookupFeature) -> FgBlock:
    block: FgBlock = {
        "feature_type": "lookup_feature",
        "feature_name": message.feature_name,
        "map": message.map,
        "key": message.key,
        "default_value": effective_default(source),
    }
    buckets = _buckets(source, message)
    value_type = _value_type(message).get("value_type", "string" if buckets else "float")
    discrete = message.need_discrete or value_type == "string"
    block |= {
        "value_type": value_type,
        "needDiscrete": discrete,
        "needKey": message.need_key,
        "combiner": "" if discrete else message.combiner.lower(),
    }
    if not block["combiner"]:
        block["value_dim"] = effective_value_dim(source)
    return block | _separator(message.separator) | (buckets or _number(message)) | _normalizer(message)


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
    numbers |= _number(message)
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
    buckets = _buckets(source, message)
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
    block |= _separator(message.separator) | (buckets or _number(message)) | _normalizer(message)
    return block | _value_type(message)


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
    return block | _number(message)


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
    return block | _separator(message.separator)


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
        block |= _normalizer(message)
    else:
        block |= _number(message)
    if message.HasField("num_buckets") or message.boundaries:
        block["value_dim"] = 1
    return block | _separator(message.separator)


def _separator(separator: str) -> FgBlock:
    return {} if separator == _DEFAULT_SEPARATOR else {"separator": separator}


def _value_type(message: IdFeature | BoolMaskFeature | LookupFeature | MatchFeature) -> FgBlock:
    return {"value_type": message.fg_value_type} if message.HasField("fg_value_type") else {}


def _normalizer(
    message: RawFeature | LookupFeature | MatchFeature | OverlapFeature | CombineFeature,
) -> FgBlock:
    return {"normalizer": message.normalizer} if message.normalizer else {}


def _number(
    message: RawFeature | ExprFeature | LookupFeature | MatchFeature | OverlapFeature | CombineFeature,
) -> FgBlock:
    """Return the normalizer of a number and the boundaries of its buckets, where the config sets them."""
    block = {} if isinstance(message, ExprFeature) else _normalizer(message)
    if message.boundaries:
        block["boundaries"] = list(message.boundaries)
    return block


def _buckets(
    source: FeatureSource,
    message: IdFeature | ComboFeature | BoolMaskFeature | LookupFeature | MatchFeature,
) -> FgBlock:
    """Return the fields that turn a raw word into a row number; empty if nothing does.

    The precedence of sizes is TorchEasyRec's: a vocabulary goes before num_buckets for ids, and after it for
    words that are looked up or matched.
    """
    if message.HasField("zch"):
        return {"hash_bucket_size": _LARGEST_HASH}  # its map finds the row in the model
    if message.HasField("hash_bucket_size"):
        return {"hash_bucket_size": message.hash_bucket_size}
    by_number: FgBlock = {}
    if not isinstance(message, ComboFeature) and message.HasField("num_buckets"):
        by_number = {"num_buckets": message.num_buckets}
    if by_number and isinstance(message, LookupFeature | MatchFeature):
        return by_number
    own_default = message.HasField("default_bucketize_value")
    default = effective_default(source)
    unknown = message.default_bucketize_value if own_default else _BUCKET_OF_THE_UNKNOWN
    if message.vocab_list:
        in_front = [] if own_default else [default, _OUT_OF_VOCABULARY]
        return {"vocab_list": [*in_front, *message.vocab_list], "default_bucketize_value": unknown}
    if rows := dictionary_rows(source, message):
        return {"vocab_dict": dict(rows), "default_bucketize_value": unknown}
    return by_number
