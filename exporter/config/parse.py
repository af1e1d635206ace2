"""Pipeline-config text to a PipelineConfig: what TorchEasyRec's text means, for the models Slipway builds."""

from exporter.config.feature_messages import feature_sources
from exporter.config.features import needs_generation, read_features
from exporter.config.groups import read_groups
from exporter.config.hstu_match import check_hstu_match, read_hstu_match, with_history_lengths_shared
from exporter.config.message import read_message, require_fields
from exporter.config.pb.data_pb2 import DataConfig, FgMode
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.config.schema import PipelineConfig
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig

SUPPORTED_MODELS = ("hstu_match",)


def parse_pipeline_config(text: str, *, where: str = "config") -> PipelineConfig:
    """Read and check a whole model's config; what only concerns training is accepted and ignored.

    Args:
        text: protobuf text format, as TorchEasyRec reads it.
        where: what to call the text in errors; line and column are added where they are known.

    Raises:
        InvalidPipelineConfig: the text does not parse, or contradicts itself.
        UnsupportedConfig: it asks for something Slipway does not build.
    """
    config = parse_published_config(text, where=where)
    check_hstu_match(config.model, config.features, config.groups)
    return config


def parse_published_config(text: str, *, where: str = "config") -> PipelineConfig:
    """Read one tower's own config, as an artifact holds it: the groups of other towers are not in it."""
    message = read_message(text, where)
    kind = message.model_config.WhichOneof("model")
    if kind is None:
        raise InvalidPipelineConfig(
            f"{where} describes no model", hint="add model_config with one model in it", where="model_config"
        )
    if kind not in SUPPORTED_MODELS:
        raise UnsupportedConfig(
            f"model {kind} is of a family that Slipway does not export",
            hint=f"supported are {', '.join(SUPPORTED_MODELS)}",
            where=f"model_config.{kind}",
        )
    require_fields(message, where)
    _refuse_other_weights(message)
    _refuse_negative_tables(message)
    features = read_features(message)
    groups = read_groups(message.model_config, features)
    model = read_hstu_match(message.model_config.hstu_match)
    return PipelineConfig(
        text=text,
        features=with_history_lengths_shared(model, features, groups),
        groups=groups,
        model=model,
        train_input_path=message.train_input_path,
        train_rows_are_encoded=_train_rows_are_encoded(message),
    )


def effective_fg_mode(data: DataConfig) -> FgMode:
    """What training rows hold; the older fg_encoded wins where it is set."""
    if not data.HasField("fg_encoded"):
        return data.fg_mode
    if data.fg_encoded:
        return FgMode.FG_NONE
    return FgMode.FG_DAG if data.fg_threads > 0 else FgMode.FG_NORMAL


def _train_rows_are_encoded(message: EasyRecConfig) -> bool:
    """A package takes encoded values in every fg_mode; the mode only says what the training rows hold."""
    if effective_fg_mode(message.data_config) == FgMode.FG_NONE:
        return True
    return not any(needs_generation(source) for source in feature_sources(message))


def _refuse_other_weights(message: EasyRecConfig) -> None:
    """Refuse a config whose export would not take the plain fp32 weights of the checkpoint."""
    export, train = message.export_config, message.train_config
    averaged = (
        export.use_dense_ema if export.HasField("use_dense_ema") else train.dense_optimizer.HasField("ema")
    )
    if averaged:
        raise UnsupportedConfig(
            "the config exports averaged weights (dense_optimizer.ema), which Slipway does not read",
            hint="set export_config { use_dense_ema: false } to export the weights that training left",
            where="export_config.use_dense_ema",
        )
    if export.mixed_precision:
        raise UnsupportedConfig(
            f"export_config.mixed_precision is {export.mixed_precision}, and Slipway exports FP32",
            hint="leave export_config.mixed_precision out; train_config.mixed_precision may stay",
            where="export_config.mixed_precision",
        )


def _refuse_negative_tables(message: EasyRecConfig) -> None:
    """Refuse features that training kept apart as sampled negatives: their tables go by other names."""
    data = message.data_config
    sampler = data.WhichOneof("sampler")
    if sampler is None or sampler == "tdm_sampler" or data.force_base_data_group:
        return
    sampled = set(getattr(data, sampler).attr_fields)
    encoded = effective_fg_mode(data) in (FgMode.FG_NONE, FgMode.FG_BUCKETIZE)
    for source in feature_sources(message):
        if (source.name if encoded else source.column_of_raw_rows) in sampled:
            source.refuse(
                f"{sampler} samples it, which puts it into a data group of its own",
                hint="train with data_config.force_base_data_group: true",
            )
