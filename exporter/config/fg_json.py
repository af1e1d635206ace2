"""A feature in fg.json: how TorchEasyRec's feature generator makes the model's values from raw ones."""

from pydantic import JsonValue

from exporter.config.feature_messages import FeatureSource
from exporter.config.features import effective_default
from exporter.config.pb.feature_kinds_pb2 import IdFeature, RawFeature

FgBlock = dict[str, JsonValue]

_DEFAULT_SEPARATOR = "\x1d"
_OUT_OF_VOCABULARY = "<OOV>"
_BUCKET_OF_THE_UNKNOWN = 1  # where default_bucketize_value is not set


def fg_json(source: FeatureSource) -> FgBlock:
    """The feature's own block; inside a sequence it goes into the sequence's `features`."""
    message = source.message
    block = _id_block(source, message) if isinstance(message, IdFeature) else _raw_block(source, message)
    if message.HasField("stub_type"):
        block["stub_type"] = message.stub_type
    if source.parent is not None and message.sequence_fields:
        block["sequence_fields"] = list(message.sequence_fields)
    if source.is_sequence and source.parent is None:
        block["feature_type"] = f"sequence_{block['feature_type']}"
        block["sequence_delim"] = message.sequence_delim
        block["sequence_length"] = message.sequence_length
    return block


def fg_sequence(source: FeatureSource, members: list[JsonValue]) -> FgBlock:
    """The block of the sequence around `source`, holding `members`."""
    assert source.parent is not None
    return {
        "sequence_name": source.parent.sequence_name,
        "sequence_length": source.parent.sequence_length,
        "sequence_delim": source.parent.sequence_delim,
        "sequence_pk": source.parent.sequence_pk or f"user:{source.parent.sequence_name}",
        "features": members,
    }


def _id_block(source: FeatureSource, message: IdFeature) -> FgBlock:
    block: FgBlock = {
        "feature_type": "id_feature",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "expression": message.expression,
        "value_type": message.fg_value_type if message.HasField("fg_value_type") else "string",
        "need_prefix": False,
    }
    if message.separator != _DEFAULT_SEPARATOR:
        block["separator"] = message.separator
    block |= _buckets(source, message)
    block["value_dim"] = message.value_dim if message.HasField("value_dim") else int(source.is_sequence)
    return block


def _buckets(source: FeatureSource, message: IdFeature) -> FgBlock:
    """How a raw id becomes a row number; a vocabulary goes before num_buckets, as in TorchEasyRec."""
    if message.HasField("hash_bucket_size"):
        return {"hash_bucket_size": message.hash_bucket_size}
    own_default = message.HasField("default_bucketize_value")
    default = effective_default(source)
    unknown = message.default_bucketize_value if own_default else _BUCKET_OF_THE_UNKNOWN
    if message.vocab_list:
        in_front = [] if own_default else [default, _OUT_OF_VOCABULARY]
        return {"vocab_list": [*in_front, *message.vocab_list], "default_bucketize_value": unknown}
    if message.vocab_dict:
        rows: FgBlock = dict(sorted(message.vocab_dict.items()))
        if default and not own_default:
            rows[default] = 0
        return {"vocab_dict": rows, "default_bucketize_value": unknown}
    return {"num_buckets": message.num_buckets}


def _raw_block(source: FeatureSource, message: RawFeature) -> FgBlock:
    block: FgBlock = {
        "feature_type": "raw_feature",
        "feature_name": message.feature_name,
        "default_value": effective_default(source),
        "expression": message.expression,
        "value_type": "float",
    }
    if message.value_dim > 1:
        if message.separator != _DEFAULT_SEPARATOR:
            block["separator"] = message.separator
        block["value_dim"] = message.value_dim
    if message.normalizer:
        block["normalizer"] = message.normalizer
    if message.boundaries:
        block["boundaries"] = list(message.boundaries)
    return block
