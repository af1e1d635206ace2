"""Pipeline-config text to a PipelineConfig: what TorchEasyRec's text means, for the models Slipway builds."""

from exporter.config import dbmtl, dlrm_hstu, hstu_match, match_groups, match_messages, multi_tower_din
from exporter.config.data_groups import effective_fg_mode
from exporter.config.feature_messages import feature_sources
from exporter.config.features import needs_generation, read_features
from exporter.config.groups import read_groups
from exporter.config.hstu import DlrmHstuConfig, HstuMatchConfig
from exporter.config.joined_sequences import with_sequences_joined
from exporter.config.match import DssmConfig, MindConfig, groups_of
from exporter.config.message import read_message, require_fields
from exporter.config.pb.data_pb2 import FgMode
from exporter.config.pb.model_pb2 import ModelConfig as ModelMessage
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.config.ranking import DbmtlConfig, MultiTowerDinConfig
from exporter.config.schema import FeatureGroup, ModelConfig, PipelineConfig
from exporter.config.tables import check_tables
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from exporter.spec import TowerName

SUPPORTED_MODELS = ("hstu_match", "dlrm_hstu", "multi_tower_din", "dbmtl", *match_messages.FAMILIES)


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
    match config.model:
        case HstuMatchConfig() as model:
            hstu_match.check_hstu_match(model, config.features, config.groups)
        case DlrmHstuConfig() as model:
            dlrm_hstu.check_dlrm_hstu(model, config.features, config.groups)
        case DssmConfig() | MindConfig() as model:
            match_groups.check_match(model, config.features, config.groups)
        case MultiTowerDinConfig() as model:
            multi_tower_din.check_multi_tower_din(model, config.features, config.groups)
        case DbmtlConfig() as model:
            dbmtl.check_dbmtl(model, config.features, config.groups)
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
    features = read_features(message)
    groups = read_groups(message.model_config, features)
    model = _read_model(message.model_config)
    for tables in _embedding_groups(model, groups):
        check_tables(tables, features)
    return PipelineConfig(
        text=text,
        features=with_sequences_joined(features, groups, by_model=_groups_in_step(model)),
        groups=groups,
        model=model,
        train_input_path=message.train_input_path,
        train_rows_are_encoded=_train_rows_are_encoded(message),
        averaged_weights=_averaged_weights(message),
        variational_dropout=message.model_config.HasField("variational_dropout"),
    )


def _read_model(message: ModelMessage) -> ModelConfig:
    match message.WhichOneof("model"):
        case "hstu_match":
            return hstu_match.read_hstu_match(message.hstu_match)
        case "dlrm_hstu":
            return dlrm_hstu.read_dlrm_hstu(message)
        case "multi_tower_din":
            return multi_tower_din.read_multi_tower_din(message)
        case "dbmtl":
            return dbmtl.read_dbmtl(message)
        case _:
            return match_messages.read_match(message)


def _groups_in_step(model: ModelConfig) -> tuple[tuple[str, ...], ...]:
    match model:
        case HstuMatchConfig():
            return hstu_match.groups_in_step(model)
        case DlrmHstuConfig():
            return dlrm_hstu.groups_in_step(model)
        case _:
            return ()


def _embedding_groups(
    model: ModelConfig, groups: tuple[FeatureGroup, ...]
) -> tuple[tuple[FeatureGroup, ...], ...]:
    """Groups by the tables they are read from: each tower of a match model has its own."""
    if not isinstance(model, DssmConfig | MindConfig):
        return (groups,)
    towers = [groups_of(model, name) for name in (TowerName.USER, TowerName.ITEM)]
    return tuple(tuple(group for group in groups if group.name in read) for read in towers)


def _averaged_weights(message: EasyRecConfig) -> bool:
    """Whether dense weights are to be the averages that training kept beside the weights."""
    export, train = message.export_config, message.train_config
    return export.use_dense_ema if export.HasField("use_dense_ema") else train.dense_optimizer.HasField("ema")


def _train_rows_are_encoded(message: EasyRecConfig) -> bool:
    """A package takes encoded values in every fg_mode; the mode only says what the training rows hold."""
    if effective_fg_mode(message.data_config) == FgMode.FG_NONE:
        return True
    return not any(needs_generation(source) for source in feature_sources(message))


def _refuse_other_weights(message: EasyRecConfig) -> None:
    """Refuse a config whose export would not take the fp32 weights of the checkpoint."""
    export = message.export_config
    if export.mixed_precision:
        raise UnsupportedConfig(
            f"export_config.mixed_precision is {export.mixed_precision}, and Slipway exports FP32",
            hint="leave export_config.mixed_precision out; train_config.mixed_precision may stay",
            where="export_config.mixed_precision",
        )
