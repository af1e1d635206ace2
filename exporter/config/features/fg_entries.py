"""Entries of a feature's block in fg.json that features of several kinds have."""

from pydantic import JsonValue

from exporter.config.features.feature_files import path_in_config
from exporter.config.features.feature_messages import FeatureSource
from exporter.config.features.table_rows import (
    WordMessage,
    WordOrNumberMessage,
    dictionary_rows,
    effective_default,
)
from exporter.config.pb.feature_kinds_pb2 import (
    BoolMaskFeature,
    CombineFeature,
    ComboFeature,
    ExprFeature,
    IdFeature,
    LookupFeature,
    MatchFeature,
    OverlapFeature,
    RawFeature,
)

FgBlock = dict[str, JsonValue]

_DEFAULT_SEPARATOR = "\x1d"
_OUT_OF_VOCABULARY = "<OOV>"
_BUCKET_OF_THE_UNKNOWN = 1  # default_bucketize_value where the config leaves it out
_ALL_HASHES = 2**63 - 1  # buckets of ids that are mapped to rows behind the hash


def separator_entry(separator: str) -> FgBlock:
    """Return the separator of several values, if it is not the usual one."""
    return {} if separator == _DEFAULT_SEPARATOR else {"separator": separator}


def value_type_entry(message: IdFeature | BoolMaskFeature | LookupFeature | MatchFeature) -> FgBlock:
    """Return the type of a raw value, if the config sets it."""
    return {"value_type": message.fg_value_type} if message.HasField("fg_value_type") else {}


def normalizer_entry(
    message: RawFeature | WordOrNumberMessage | OverlapFeature | CombineFeature,
) -> FgBlock:
    """Return the normalizer of a number, if the config sets one."""
    return {"normalizer": message.normalizer} if message.normalizer else {}


def number_entries(
    message: RawFeature | ExprFeature | WordOrNumberMessage | OverlapFeature | CombineFeature,
) -> FgBlock:
    """Return the normalizer of a number and the boundaries of its buckets, where the config sets them."""
    block = {} if isinstance(message, ExprFeature) else normalizer_entry(message)
    if message.boundaries:
        block["boundaries"] = list(message.boundaries)
    return block


def bucket_entries(source: FeatureSource, message: WordMessage) -> FgBlock:
    """Return the fields that turn a raw word into a row number; empty if nothing does.

    The precedence of sizes is TorchEasyRec's: a vocabulary goes before num_buckets for ids, and after it for
    words that are looked up, matched or computed.
    """
    if message.HasField("zch") or message.HasField("dynamicemb"):
        return {"hash_bucket_size": _ALL_HASHES}
    if message.HasField("hash_bucket_size"):
        return {"hash_bucket_size": message.hash_bucket_size}
    by_number: FgBlock = {}
    if not isinstance(message, ComboFeature) and message.HasField("num_buckets"):
        by_number = {"num_buckets": message.num_buckets}
    if by_number and isinstance(message, WordOrNumberMessage):
        return by_number
    return _vocabulary(source, message) or by_number


def _vocabulary(source: FeatureSource, message: WordMessage) -> FgBlock:
    """Return the vocabulary that numbers a feature's words, and the number of all other words."""
    own_default = message.HasField("default_bucketize_value")
    unknown = message.default_bucketize_value if own_default else _BUCKET_OF_THE_UNKNOWN
    words: FgBlock = {}
    if message.vocab_list:
        in_front = [] if own_default else [effective_default(source), _OUT_OF_VOCABULARY]
        words = {"vocab_list": [*in_front, *message.vocab_list]}
    elif rows := dictionary_rows(source, message):
        words = {"vocab_dict": dict(rows)}
    elif message.vocab_file:
        words = {"vocab_file": path_in_config(message, message.vocab_file)}
    return words and {**words, "default_bucketize_value": unknown}
