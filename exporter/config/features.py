"""Feature messages to features: effective defaults, tables, sequences."""

from collections.abc import Iterable

from exporter.config.feature_messages import FeatureSource, feature_sources
from exporter.config.pb.feature_kinds_pb2 import IdFeature, RawFeature
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.config.schema import Feature, FeatureKind, Pooling, Sequence, Table
from exporter.errors import InvalidPipelineConfig

_DEFAULT_SEPARATOR = "\x03"
_SEQUENCE_DEFAULT_VALUE = "0"  # an empty default_value means this inside a sequence
_BUCKETS_OF_A_VOCABULARY = 2  # the default value and "out of vocabulary", in front of the listed words


def read_features(config: EasyRecConfig) -> tuple[Feature, ...]:
    """Every feature in config order, flattened.

    Raises:
        UnsupportedConfig: a kind or a property of a feature that Slipway does not build.
        InvalidPipelineConfig: features that contradict themselves or each other.
    """
    separator = config.data_config.fg_encoded_multival_sep or _DEFAULT_SEPARATOR
    features = tuple(_read(source, separator) for source in feature_sources(config))
    _check_names(features)
    _check_tables(features)
    return features


def needs_generation(source: FeatureSource) -> bool:
    """Whether raw rows hold other values than the model takes: words to look up, numbers to bucketize."""
    message = source.message
    if source.column_of_raw_rows != source.name:
        return True
    if isinstance(message, RawFeature):
        return bool(message.boundaries or message.normalizer)
    return (
        message.HasField("hash_bucket_size")
        or message.HasField("vocab_file")
        or bool(message.vocab_list or message.vocab_dict)
    )


def effective_default(source: FeatureSource) -> str:
    return source.message.default_value or (_SEQUENCE_DEFAULT_VALUE if source.is_sequence else "")


def _read(source: FeatureSource, separator: str) -> Feature:
    message = source.message
    is_id = isinstance(message, IdFeature)
    table = _id_table(source, message) if isinstance(message, IdFeature) else _bucket_table(source, message)
    feature = Feature(
        name=source.name,
        bare_name=message.feature_name,
        kind=FeatureKind.ID if is_id else FeatureKind.RAW,
        expression=message.expression,
        sequence=_sequence(source),
        grouped=source.parent is not None,
        table=table,
        value_dim=message.value_dim
        if message.HasField("value_dim") or not is_id
        else int(source.is_sequence),
        value_dim_is_set=message.HasField("value_dim"),
        default_value=effective_default(source),
        default_value_is_set=bool(message.default_value) and message.HasField("default_value"),
        fill_value=message.fg_encoded_default_value or None,
        separator=separator,
        weighted=isinstance(message, IdFeature) and message.weighted,
        pooling=_pooling(source),
    )
    _check_width(feature, source)
    return feature


def _sequence(source: FeatureSource) -> Sequence | None:
    if not source.is_sequence:
        return None
    block = source.parent or source.message
    if not block.sequence_delim:
        source.invalid("sequence_delim is empty", hint="name what separates events where a row is one string")
    name = source.parent.sequence_name if source.parent else source.name
    return Sequence(name=name, length=block.sequence_length, delim=block.sequence_delim)


def _pooling(source: FeatureSource) -> Pooling:
    pooling = source.message.pooling.lower()
    if pooling not in set(Pooling):
        source.invalid(f"pooling is {source.message.pooling!r}", hint='write "sum" or "mean"')
    return Pooling(pooling)


def _id_table(source: FeatureSource, message: IdFeature) -> Table:
    for name in ("zch", "dynamicemb", "vocab_file"):
        if message.HasField(name):
            source.refuse(
                f"{name} is not supported",
                hint="supported are num_buckets, hash_bucket_size, vocab_list and vocab_dict",
            )
    return _table(source, rows=_id_rows(source, message))


def _id_rows(source: FeatureSource, message: IdFeature) -> int:
    own_default = message.HasField("default_bucketize_value")
    if message.HasField("hash_bucket_size"):
        return message.hash_bucket_size
    if message.HasField("num_buckets"):
        return message.num_buckets
    if message.vocab_list:
        words = len(message.vocab_list)
        if own_default and message.default_bucketize_value >= words:
            source.invalid(
                f"default_bucketize_value {message.default_bucketize_value} is past the end of vocab_list",
                hint=f"write a number from 0 to {words - 1}",
            )
        return words if own_default else words + _BUCKETS_OF_A_VOCABULARY
    if not message.vocab_dict:
        source.invalid(
            "the size of its table is not given",
            hint="set num_buckets, hash_bucket_size, vocab_list or vocab_dict",
        )
    return max(message.vocab_dict.values()) + 1


def _bucket_table(source: FeatureSource, message: RawFeature) -> Table | None:
    if message.boundaries:
        return _table(source, rows=len(message.boundaries) + 1)
    dense_embedding = message.WhichOneof("dense_emb")
    if dense_embedding and not source.is_sequence:  # inside a sequence TorchEasyRec ignores it as well
        source.refuse(
            f"dense embedding {dense_embedding} is not supported",
            hint="supported are plain numbers, and boundaries with embedding_dim",
        )
    return None


def _table(source: FeatureSource, *, rows: int) -> Table:
    message = source.message
    if rows == 0 or message.embedding_dim == 0:
        source.invalid(
            f"its table would have {rows} rows of width {message.embedding_dim}",
            hint="set embedding_dim, and the number of rows, to more than 0",
        )
    if message.data_type != "FP32":
        source.refuse(f"tables of type {message.data_type} are not supported", hint="supported is FP32")
    return Table(name=message.embedding_name or f"{source.name}_emb", rows=rows, dim=message.embedding_dim)


def _check_width(feature: Feature, source: FeatureSource) -> None:
    if feature.table is None and feature.value_dim == 0:
        source.invalid(
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


def _check_tables(features: Iterable[Feature]) -> None:
    """Features that name one table agree on its size."""
    first: dict[str, Feature] = {}
    for feature in features:
        if feature.table is None:
            continue
        other = first.setdefault(feature.table.name, feature)
        assert other.table is not None
        if other.table != feature.table:
            raise InvalidPipelineConfig(
                f"features {other.name} and {feature.name} share table {feature.table.name}, "
                f"but one has {other.table.rows} rows of width {other.table.dim} "
                f"and the other {feature.table.rows} of {feature.table.dim}",
                hint="give both the same embedding_dim and number of rows, or embedding_names of their own",
                where=f"feature_configs: {feature.name}",
            )
