"""Number of rows of a feature's table, as TorchEasyRec sizes it, and the map from ids of any size to them."""

from collections.abc import Sequence
from typing import assert_never

from exporter.config.features.feature_messages import FeatureSource
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
    TokenizeFeature,
)
from exporter.config.schema import ROWS_OF_CHECKPOINT, IdMapKind

_CONSTANT = "CONSTANT"  # dynamicemb's initializers
_RANDOM = ("NORMAL", "TRUNCATED_NORMAL", "UNIFORM", "DEBUG")
SEQUENCE_DEFAULT_VALUE = "0"  # an empty default_value means this inside a sequence

# Messages by the values that TorchEasyRec computes: always row numbers of a table; row numbers if a table or
# buckets are given, otherwise numbers; numbers, or the row numbers of their buckets.
IdMessage = IdFeature | ComboFeature | BoolMaskFeature
WordOrNumberMessage = LookupFeature | MatchFeature | CustomFeature
NumberMessage = RawFeature | ExprFeature | OverlapFeature | KvDotProduct
WordMessage = IdMessage | WordOrNumberMessage

_SIZES = ("hash_bucket_size", "num_buckets")  # the first one given counts
_BUCKETS_OF_A_VOCABULARY = 2  # the default value and "out of vocabulary", in front of the listed words


def rows_of_table(source: FeatureSource) -> int | None:
    """Return the number of rows of the feature's table; None if its values are plain numbers.

    Raises:
        InvalidPipelineConfig: the size of a table is missing, 0, or contradicts itself.
    """
    fields = source.message.DESCRIPTOR.fields_by_name
    given = [name for name in _SIZES if name in fields and source.message.HasField(name)]
    if given and getattr(source.message, given[0]) == 0:
        source.raise_invalid(f"{given[0]} is 0", hint="set the number of rows to more than 0")
    return _rows(source)


def effective_default(source: FeatureSource) -> str:
    """Return the default of a raw value."""
    written = "" if isinstance(source.message, OverlapFeature) else source.message.default_value
    return written or (SEQUENCE_DEFAULT_VALUE if source.is_sequence else "")


def dictionary_rows(source: FeatureSource, message: WordMessage) -> dict[str, int]:
    """Return the row of each word of a vocab_dict; the default value has row 0 unless the config sets one."""
    rows = dict(sorted(message.vocab_dict.items()))
    if rows and effective_default(source) and not message.HasField("default_bucketize_value"):
        rows[effective_default(source)] = 0
    return rows


def _rows(source: FeatureSource) -> int | None:
    message = source.message
    match message:
        case TokenizeFeature():
            return ROWS_OF_CHECKPOINT
        case IdFeature() | BoolMaskFeature() | ComboFeature():
            rows = _rows_of_words(source, message)
            if rows is None:
                source.raise_invalid(
                    "the size of its table is not given",
                    hint="set num_buckets, hash_bucket_size, vocab_list, vocab_dict, vocab_file or zch",
                )
            return rows
        case LookupFeature() | MatchFeature() | CustomFeature():
            rows = _rows_of_words(source, message)
            return _rows_of_buckets(message.boundaries) if rows is None else rows
        case CombineFeature():
            if message.HasField("num_buckets"):
                return message.num_buckets
            return _rows_of_buckets(message.boundaries)
        case RawFeature() | ExprFeature() | OverlapFeature() | KvDotProduct():
            return _rows_of_buckets(message.boundaries)
        case _:
            assert_never(message)


def _rows_of_words(source: FeatureSource, message: WordMessage) -> int | None:
    """Return the number of rows of a table for ids or words, from the first size given; None if none is."""
    if message.HasField("dynamicemb") or message.HasField("hash_bucket_size"):
        return message.dynamicemb.max_capacity or message.hash_bucket_size
    if not isinstance(message, ComboFeature) and message.HasField("num_buckets"):
        return message.num_buckets
    if message.vocab_list:
        # TorchEasyRec gives a match_feature's table one more row than its vocabulary has words.
        return _rows_of_vocabulary(source, message) + isinstance(message, MatchFeature)
    if rows := dictionary_rows(source, message):
        return max(rows.values()) + 1
    if not message.vocab_file:
        return None
    if not message.HasField("default_bucketize_value"):
        source.raise_invalid(
            "it has a vocab_file and no default_bucketize_value",
            hint="set default_bucketize_value, the row of words that are not in the file",
        )
    return ROWS_OF_CHECKPOINT


def _rows_of_vocabulary(source: FeatureSource, message: WordMessage) -> int:
    words = len(message.vocab_list)
    if not message.HasField("default_bucketize_value"):
        return words + _BUCKETS_OF_A_VOCABULARY
    if message.default_bucketize_value >= words:
        source.raise_invalid(
            f"default_bucketize_value {message.default_bucketize_value} is past the end of vocab_list",
            hint=f"write a number from 0 to {words - 1}",
        )
    return words


def _rows_of_buckets(boundaries: Sequence[float]) -> int | None:
    return len(boundaries) + 1 if boundaries else None


def id_map_of(source: FeatureSource) -> IdMapKind | None:
    """Return the kind of map that turns the feature's ids into row numbers, which goes before any size.

    TorchEasyRec keeps the table of dynamicemb as any other where embedding_constraints are set, too: of
    max_capacity rows, and without a map.
    """
    message = source.message
    for kind in IdMapKind:
        if kind in message.DESCRIPTOR.fields_by_name and message.HasField(kind):
            is_plain = kind is IdMapKind.DYNAMICEMB and message.HasField("embedding_constraints")
            return None if is_plain else kind
    return None


def rows_of_id_map(source: FeatureSource, kind: IdMapKind) -> int:
    """Return the rows of the table behind a map; which policy of eviction it has matters in training only.

    Raises:
        InvalidPipelineConfig: zch lacks a size or a policy.
    """
    options = getattr(source.message, kind)
    match kind:
        case IdMapKind.ZCH:
            if options.WhichOneof("eviction_policy") is None:
                source.raise_invalid("zch has no eviction policy", hint="set lfu, lru or distance_lfu in it")
            if options.zch_size == 0:
                source.raise_invalid("zch_size is 0", hint="set it to more than 0")
            return int(options.zch_size)
        case IdMapKind.DYNAMICEMB:
            return ROWS_OF_CHECKPOINT  # at most max_capacity


def unknown_row(source: FeatureSource) -> float:
    """Return the number that fills the row of unknown ids, which dynamicemb has where a model is evaluated.

    Raises:
        UnsupportedConfig: the row is random.
        InvalidPipelineConfig: dynamicemb has no such initializer.
    """
    initializer = getattr(source.message, IdMapKind.DYNAMICEMB).eval_initializer_args
    mode = initializer.mode or _CONSTANT
    if mode in _RANDOM:
        source.refuse(
            f"dynamicemb gives unknown ids random rows by eval_initializer_args.mode {mode}",
            hint=f"set the mode to {_CONSTANT}: a served model gives equal outputs for equal inputs",
        )
    if mode != _CONSTANT:
        source.raise_invalid(
            f"dynamicemb has no initializer {mode!r}", hint=f"write {_CONSTANT} in eval_initializer_args.mode"
        )
    return float(initializer.value)
