"""Read the features of a config: their effective defaults, tables and sequences."""

from collections.abc import Iterable
from typing import assert_never

from exporter.config.features.data_groups import DataGroups
from exporter.config.features.feature_messages import FeatureSource, feature_sources
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
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.config.schema import Feature, IdMapKind, Pooling, Sequence, TableConfig
from exporter.errors import InvalidPipelineConfig

_DEFAULT_SEPARATOR = "\x03"
_SEQUENCE_DEFAULT_VALUE = "0"  # an empty default_value means this inside a sequence
_BUCKETS_OF_A_VOCABULARY = 2  # the default value and "out of vocabulary", in front of the listed words

# Messages by the values that TorchEasyRec computes: always row numbers of a table; row numbers if a table or
# buckets are given, otherwise numbers; numbers, or the row numbers of their buckets.
IdMessage = IdFeature | ComboFeature | BoolMaskFeature
WordOrNumberMessage = LookupFeature | MatchFeature | CombineFeature
NumberMessage = RawFeature | ExprFeature | OverlapFeature | KvDotProduct


def read_features(config: EasyRecConfig) -> tuple[Feature, ...]:
    """Read every feature in config order, those of sequences under their flattened names.

    Raises:
        UnsupportedConfig: a kind or a property of a feature that Slipway does not build.
        InvalidPipelineConfig: features that contradict themselves or each other.
    """
    separator = config.data_config.fg_encoded_multival_sep or _DEFAULT_SEPARATOR
    groups = DataGroups.of(config.data_config)
    features = tuple(_read(source, separator, groups) for source in feature_sources(config))
    _check_names(features)
    return features


def needs_generation(source: FeatureSource) -> bool:
    """Return whether raw rows need feature generation: a look-up of words, or buckets of numbers."""
    message = source.message
    if source.columns_of_raw_rows != (source.name,):
        return True
    if isinstance(message, RawFeature):
        return bool(message.boundaries or message.normalizer)
    if isinstance(message, IdFeature):
        return (
            message.HasField("hash_bucket_size")
            or _id_map(source) is not None
            or message.HasField("vocab_file")
            or bool(message.vocab_list or message.vocab_dict)
        )
    return True


def effective_default(source: FeatureSource) -> str:
    written = "" if isinstance(source.message, OverlapFeature) else source.message.default_value
    return written or (_SEQUENCE_DEFAULT_VALUE if source.is_sequence else "")


def effective_value_dim(source: FeatureSource) -> int:
    """Return the number of values per row, or per element of a sequence; 0 is any number."""
    message = source.message
    if isinstance(message, OverlapFeature | KvDotProduct | CombineFeature):
        return 1
    if message.HasField("value_dim"):
        return message.value_dim
    return int(source.is_sequence) if isinstance(message, IdMessage) else 1


def _read(source: FeatureSource, separator: str, groups: DataGroups) -> Feature:
    message = source.message
    feature = Feature(
        name=source.name,
        bare_name=message.feature_name,
        kind=source.kind,
        sequence=_sequence(source),
        grouped=source.parent is not None,
        table=_table(source),
        value_dim=effective_value_dim(source),
        default_value=effective_default(source),
        fill_value=message.fg_encoded_default_value or None,
        separator=separator,
        weighted=isinstance(message, IdFeature) and message.weighted,
        pooling=_pooling(source),
        data_group=groups.of_feature(source),
    )
    _check_width(feature, source)
    return feature


def _sequence(source: FeatureSource) -> Sequence | None:
    if not source.is_sequence:
        return None
    block = source.parent or source.message
    if not block.sequence_delim:
        source.raise_invalid(
            "sequence_delim is empty", hint="set the text that separates events where a row is one string"
        )
    name = source.parent.sequence_name if source.parent else source.name
    return Sequence(name=name, length=block.sequence_length, delim=block.sequence_delim)


def _pooling(source: FeatureSource) -> Pooling:
    pooling = source.message.pooling.lower()
    if pooling not in set(Pooling):
        source.raise_invalid(f"pooling is {source.message.pooling!r}", hint='write "sum" or "mean"')
    return Pooling(pooling)


def _table(source: FeatureSource) -> TableConfig | None:
    """Return the table whose row numbers the feature's values are; None for plain numbers."""
    message = source.message
    for name in ("dynamicemb", "vocab_file"):
        if name in message.DESCRIPTOR.fields_by_name and message.HasField(name):
            source.refuse(
                f"{name} is not supported",
                hint="supported are num_buckets, hash_bucket_size, vocab_list and vocab_dict",
            )
    id_map = _id_map(source)
    rows = _rows(source) if id_map is None else _rows_of_id_map(source, id_map)
    if rows is None:
        _refuse_dense_embedding(source)
        return None
    if rows == 0 or message.embedding_dim == 0:
        source.raise_invalid(
            f"its table would have {rows} rows of width {message.embedding_dim}",
            hint="set embedding_dim, and the number of rows, to more than 0",
        )
    if message.data_type != "FP32":
        source.refuse(f"tables of type {message.data_type} are not supported", hint="supported is FP32")
    return TableConfig(
        name=message.embedding_name or f"{source.name}_emb",
        rows=rows,
        dim=message.embedding_dim,
        id_map=id_map,
    )


def _id_map(source: FeatureSource) -> IdMapKind | None:
    """Return the kind of map that turns the feature's ids into row numbers, which goes before any size."""
    for kind in IdMapKind:
        if kind in source.message.DESCRIPTOR.fields_by_name and source.message.HasField(kind):
            return kind
    return None


def _rows_of_id_map(source: FeatureSource, kind: IdMapKind) -> int:
    """Return the rows of the table behind a map; which policy of eviction it has matters in training only."""
    options = getattr(source.message, kind)
    match kind:
        case IdMapKind.ZCH:
            if options.WhichOneof("eviction_policy") is None:
                source.raise_invalid("zch has no eviction policy", hint="set lfu, lru or distance_lfu in it")
            return int(options.zch_size)


def _rows(source: FeatureSource) -> int | None:
    message = source.message
    match message:
        case IdFeature() | BoolMaskFeature() | ComboFeature():
            rows = _rows_of_words(source, message)
            if rows is None:
                source.raise_invalid(
                    "the size of its table is not given",
                    hint="set num_buckets, hash_bucket_size, vocab_list, vocab_dict or zch",
                )
            return rows
        case LookupFeature() | MatchFeature():
            rows = _rows_of_words(source, message)
            return _rows_of_buckets(message) if rows is None else rows
        case CombineFeature():
            return message.num_buckets if message.HasField("num_buckets") else _rows_of_buckets(message)
        case RawFeature() | ExprFeature() | OverlapFeature() | KvDotProduct():
            return _rows_of_buckets(message)
        case _:
            assert_never(message)


def _rows_of_words(source: FeatureSource, message: IdMessage | LookupFeature | MatchFeature) -> int | None:
    """Return the number of rows of a table for ids or words, from the first size given; None if none is."""
    if message.HasField("hash_bucket_size"):
        return message.hash_bucket_size
    if not isinstance(message, ComboFeature) and message.HasField("num_buckets"):
        return message.num_buckets
    if message.vocab_list:
        # TorchEasyRec gives a match_feature's table one more row than its vocabulary has words.
        return _rows_of_vocabulary(source, message) + isinstance(message, MatchFeature)
    rows = dictionary_rows(source, message)
    return max(rows.values()) + 1 if rows else None


def dictionary_rows(
    source: FeatureSource, message: IdMessage | LookupFeature | MatchFeature
) -> dict[str, int]:
    """Return the row of each word of a vocab_dict; the default value has row 0 unless the config sets one."""
    rows = dict(sorted(message.vocab_dict.items()))
    if rows and effective_default(source) and not message.HasField("default_bucketize_value"):
        rows[effective_default(source)] = 0
    return rows


def _rows_of_vocabulary(source: FeatureSource, message: IdMessage | LookupFeature | MatchFeature) -> int:
    words = len(message.vocab_list)
    if not message.HasField("default_bucketize_value"):
        return words + _BUCKETS_OF_A_VOCABULARY
    if message.default_bucketize_value >= words:
        source.raise_invalid(
            f"default_bucketize_value {message.default_bucketize_value} is past the end of vocab_list",
            hint=f"write a number from 0 to {words - 1}",
        )
    return words


def _rows_of_buckets(message: WordOrNumberMessage | NumberMessage) -> int | None:
    return len(message.boundaries) + 1 if message.boundaries else None


def _refuse_dense_embedding(source: FeatureSource) -> None:
    kind = source.message.WhichOneof("dense_emb") if not isinstance(source.message, IdMessage) else None
    # TorchEasyRec ignores the dense embedding of numbers in a sequence.
    if kind and not (source.is_sequence and isinstance(source.message, NumberMessage)):
        source.refuse(
            f"dense embedding {kind} is not supported",
            hint="supported are plain numbers, and boundaries with embedding_dim",
        )


def _check_width(feature: Feature, source: FeatureSource) -> None:
    if feature.table is None and feature.value_dim == 0:
        source.raise_invalid(
            "value_dim is 0, but plain numbers need a fixed width", hint="set value_dim to 1 or more"
        )


def _check_names(features: Iterable[Feature]) -> None:
    seen: set[str] = set()
    for feature in features:
        if feature.name in seen:
            raise InvalidPipelineConfig(
                f"two features are named {feature.name}",
                hint="rename one of them; a feature of a sequence is named <sequence_name>__<feature_name>",
                where=f"feature_configs: {feature.name}",
            )
        seen.add(feature.name)
