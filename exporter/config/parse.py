"""Read a pipeline config in TorchEasyRec's text format as the PipelineConfig of a model."""

from functools import lru_cache

from exporter.config.bounds import check_bounds
from exporter.config.families.registry import FAMILIES
from exporter.config.family import FamilyConfig
from exporter.config.features.data_groups import effective_fg_mode
from exporter.config.features.feature_messages import feature_sources
from exporter.config.features.groups import read_groups
from exporter.config.features.joined_sequences import join_sequences
from exporter.config.features.read_features import needs_generation, read_features
from exporter.config.features.tables import check_tables
from exporter.config.message import read_message, require_fields
from exporter.config.pb.data_pb2 import DataConfig, FgMode
from exporter.config.pb.model_pb2 import Kernel as KernelMessage
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.config.positions import errors_with_lines
from exporter.config.schema import FeatureGroup, PipelineConfig
from exporter.dtypes import Kernel, Precision
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig

# A model trained with CUTLASS's kernels is served by Triton's, as Slipway has no CUTLASS kernels.
_KERNELS = {
    KernelMessage.TRITON: Kernel.TRITON,
    KernelMessage.CUTLASS: Kernel.TRITON,
    KernelMessage.PYTORCH: Kernel.PYTORCH,
}
_PRECISIONS = {"": Precision.FP32, "BF16": Precision.BF16, "FP16": Precision.FP16}
# protobuf's text parser is written in Python and takes most of the time in which a job is accepted; every few
# hours a model is exported with the same config. These are kept: a few megabytes in all.
_KEPT = 64
_LONGEST_KEPT = 1 << 16  # characters


def parse_pipeline_config(text: str, *, where: str = "config") -> PipelineConfig:
    """Read and check a whole model's config; fields that only concern training are accepted and ignored.

    The configs of the last texts are kept, and returned again.

    Args:
        text: protobuf text format, as TorchEasyRec reads it.
        where: name of the text in errors; line and column are added where they are known.

    Raises:
        InvalidPipelineConfig: the text does not parse, or contradicts itself.
        UnsupportedConfig: it asks for something Slipway does not build.
    """
    return (_parse_kept if len(text) <= _LONGEST_KEPT else _parse)(text, where)


def _parse(text: str, where: str) -> PipelineConfig:
    config = parse_published_config(text, where=where)
    with errors_with_lines(text, where):
        FAMILIES[config.model.family].check(config.model, config.features, config.groups)
    return config


_parse_kept = lru_cache(maxsize=_KEPT)(_parse)


def parse_published_config(text: str, *, where: str = "config") -> PipelineConfig:
    """Read one tower's own config, as an artifact holds it: without the groups of other towers."""
    message = read_message(text, where)
    with errors_with_lines(text, where):
        return _read_config(text, message, where)


def _read_config(text: str, message: EasyRecConfig, where: str) -> PipelineConfig:
    kind = message.model_config.WhichOneof("model")
    if kind is None:
        raise InvalidPipelineConfig(
            f"{where} describes no model", hint="add model_config with one model in it", where="model_config"
        )
    if kind not in FAMILIES:
        raise UnsupportedConfig(
            f"model {kind} is of a family that Slipway does not export",
            hint=f"supported are {', '.join(FAMILIES)}",
            where=f"model_config.{kind}",
        )
    require_fields(message, where)
    check_bounds(message, where)
    features = read_features(message)
    groups = read_groups(message.model_config, features)
    model = FAMILIES[kind].read(message.model_config)
    for tables in _embedding_groups(model, groups):
        check_tables(tables, features)
    return PipelineConfig(
        text=text,
        features=join_sequences(features, groups, by_model=model.groups_in_step),
        groups=groups,
        model=model,
        train_input_path=message.train_input_path,
        train_rows_are_encoded=_train_rows_are_encoded(message),
        item_id_field=_item_id_field(message.data_config),
        averaged_weights=_averaged_weights(message),
        default_precision=_precision(message),
        default_kernel=_KERNELS[message.model_config.kernel],
        variational_dropout=message.model_config.HasField("variational_dropout"),
    )


def _embedding_groups(
    model: FamilyConfig, groups: tuple[FeatureGroup, ...]
) -> tuple[tuple[FeatureGroup, ...], ...]:
    """Return sets of groups that share tables: all of them, or those of each tower."""
    if model.tables_are_shared:
        return (groups,)
    return tuple(tuple(group for group in groups if model.reads(tower, group.name)) for tower in model.towers)


def _item_id_field(data: DataConfig) -> str:
    """Return the column by which the negative sampler identifies an item; empty without a sampler."""
    sampler = data.WhichOneof("sampler")
    return (sampler and str(getattr(data, sampler).item_id_field)) or ""


def _averaged_weights(message: EasyRecConfig) -> bool:
    """Return whether an export takes the dense weights' moving averages, which training kept in dense_ema."""
    export, train = message.export_config, message.train_config
    return export.use_dense_ema if export.HasField("use_dense_ema") else train.dense_optimizer.HasField("ema")


def _train_rows_are_encoded(message: EasyRecConfig) -> bool:
    """Return whether training rows hold encoded values, which every package takes whatever the fg_mode."""
    if effective_fg_mode(message.data_config) == FgMode.FG_NONE:
        return True
    return not any(needs_generation(source) for source in feature_sources(message))


def _precision(message: EasyRecConfig) -> Precision:
    """Return the precision of the export; mixed_precision of train_config does not decide it."""
    named = message.export_config.mixed_precision
    if named not in _PRECISIONS:
        raise UnsupportedConfig(
            f"export_config.mixed_precision is {named}, which is not a precision",
            hint=f"write {' or '.join(filter(None, _PRECISIONS))}, or leave it out for fp32",
            where="export_config.mixed_precision",
        )
    return _PRECISIONS[named]
