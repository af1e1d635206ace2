"""Read the features of a config: their effective defaults, tables and sequences."""

import re
from collections.abc import Iterable

from exporter.config.features.data_groups import DataGroups
from exporter.config.features.dense_embeddings import read_dense_embedding
from exporter.config.features.feature_messages import FeatureSource, feature_sources
from exporter.config.features.fg_rtp import check_rtp
from exporter.config.features.table_rows import (
    IdMessage,
    WordOrNumberMessage,
    effective_default,
    id_map_of,
    rows_of_id_map,
    rows_of_table,
    unknown_row,
)
from exporter.config.pb.feature_kinds_pb2 import (
    CombineFeature,
    IdFeature,
    KvDotProduct,
    MatchFeature,
    OverlapFeature,
    RawFeature,
    TokenizeFeature,
)
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.config.schema import Feature, IdMapKind, Pooling, Sequence, TableConfig
from exporter.dtypes import TableDtype
from exporter.errors import InvalidPipelineConfig

_TABLE_DTYPES = {"FP32": TableDtype.FP32, "FP16": TableDtype.FP16}  # by a feature's data_type
_DEFAULT_SEPARATOR = "\x03"
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TOKENIZERS = ("bpe", "sentencepiece")


def read_features(config: EasyRecConfig) -> tuple[Feature, ...]:
    """Read every feature in config order, those of sequences under their flattened names.

    Features of `stub_type` are left out: no row and no model has them, only feature generation.

    Raises:
        UnsupportedConfig: a kind or a property of a feature that Slipway does not build.
        InvalidPipelineConfig: features that contradict themselves or each other.
    """
    separator = config.data_config.fg_encoded_multival_sep or _DEFAULT_SEPARATOR
    groups = DataGroups.of(config.data_config)
    sources = (source for source in feature_sources(config) if not source.message.stub_type)
    features = tuple(_read(source, separator, groups) for source in sources)
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
            or message.HasField("zch")
            or message.HasField("dynamicemb")
            or message.HasField("vocab_file")
            or bool(message.vocab_list or message.vocab_dict)
        )
    return True


def effective_value_dim(source: FeatureSource) -> int:
    """Return the number of values per row, or per element of a sequence; 0 is any number."""
    message = source.message
    if isinstance(message, TokenizeFeature):
        return int(message.tokens_as_sequence)
    if isinstance(message, OverlapFeature | KvDotProduct | CombineFeature):
        return 1
    if message.HasField("value_dim"):
        return message.value_dim
    return int(source.is_sequence) if isinstance(message, IdMessage) else 1


def _read(source: FeatureSource, separator: str, groups: DataGroups) -> Feature:
    message = source.message
    check_rtp(source)
    _check_tokens(source)
    table = _table(source)
    feature = Feature(
        name=source.name,
        bare_name=message.feature_name,
        kind=source.kind,
        sequence=_sequence(source, separator),
        grouped=source.parent is not None and not source.is_sequence_of_tokens,
        table=table,
        dense_embedding=None if table else read_dense_embedding(source, _value_dim(source, table)),
        value_dim=_value_dim(source, table),
        default_value=effective_default(source),
        fill_value=_fill_value(source, table),
        separator=separator,
        weighted=isinstance(message, IdFeature) and message.weighted,
        pooling=_pooling(source),
        data_group=groups.of_feature(source),
    )
    _check_width(feature, source)
    return feature


def _fill_value(source: FeatureSource, table: TableConfig | None) -> str | None:
    """Return what an empty row becomes, None for nothing.

    TorchEasyRec generates a feature that training masks from its default_value, unless the config says how
    that is encoded. It is known here where generation leaves a value as it is.
    """
    message = source.message
    if message.HasField("fg_encoded_default_value") or not message.use_mask or source.is_sequence:
        return message.fg_encoded_default_value or None
    default = effective_default(source)
    if table is None:
        is_kept = _value_dim(source, table) == 1 and not getattr(message, "normalizer", "")
        return default if is_kept and _NUMBER.fullmatch(default) else None
    has_words = any(getattr(message, name, ()) for name in ("vocab_list", "vocab_dict", "vocab_file"))
    is_row = getattr(message, "num_buckets", 0) == table.rows and not has_words
    return default if is_row and default.isdecimal() and int(default) < table.rows else None


def _value_dim(source: FeatureSource, table: TableConfig | None) -> int:
    """Return the number of values per row or element that encoded rows have."""
    if table is None and isinstance(source.message, MatchFeature):
        return 1
    declared = effective_value_dim(source)
    is_number = table is None and isinstance(source.message, WordOrNumberMessage)
    return max(declared, 1) if is_number else declared


def _check_tokens(source: FeatureSource) -> None:
    message = source.message
    if not isinstance(message, TokenizeFeature):
        return
    if message.tokenizer_type not in _TOKENIZERS:
        source.raise_invalid(
            f"tokenizer_type is {message.tokenizer_type!r}", hint=f"write {' or '.join(_TOKENIZERS)}"
        )
    if not message.vocab_file:
        source.raise_invalid("vocab_file is empty", hint="name the file of the trained tokenizer")
    if message.tokens_as_sequence and source.field.startswith("sequence_"):
        source.raise_invalid(
            "its elements are texts already, and tokens_as_sequence makes elements of tokens",
            hint="write tokenize_feature, or leave tokens_as_sequence out",
        )


def _sequence(source: FeatureSource, separator: str) -> Sequence | None:
    if not source.is_sequence:
        return None
    if source.is_sequence_of_tokens:  # as many elements as its text has tokens, beside whatever sequence
        return Sequence(name=source.name, length=source.message.sequence_length, delim=separator)
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
    id_map = id_map_of(source)
    rows = rows_of_table(source) if id_map is None else rows_of_id_map(source, id_map)
    if rows is None:
        return None
    if message.data_type not in _TABLE_DTYPES:
        source.raise_invalid(f"data_type is {message.data_type!r}", hint='write "FP32" or "FP16"')
    return TableConfig(
        name=message.embedding_name or f"{source.name}_emb",
        rows=rows,
        dim=message.embedding_dim,
        id_map=id_map,
        unknown=unknown_row(source) if id_map is IdMapKind.DYNAMICEMB else 0.0,
        # The files of dynamicemb hold float32, whatever the rows were in training.
        dtype=TableDtype.FP32 if id_map is IdMapKind.DYNAMICEMB else _TABLE_DTYPES[message.data_type],
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
