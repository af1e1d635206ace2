"""The model families that a pipeline config may be of: how each message is read, and its groups checked."""

from collections.abc import Callable, Mapping, Sequence

from exporter.config.families.dbmtl import check_dbmtl, read_dbmtl
from exporter.config.families.dlrm_hstu import check_dlrm_hstu, read_dlrm_hstu
from exporter.config.families.hstu import DlrmHstuConfig, HstuMatchConfig
from exporter.config.families.hstu_match import check_hstu_match, read_hstu_match
from exporter.config.families.match import DssmConfig, MindConfig
from exporter.config.families.match_groups import check_match
from exporter.config.families.match_messages import read_dat, read_dssm, read_mind
from exporter.config.families.multi_tower_din import check_multi_tower_din, read_multi_tower_din
from exporter.config.families.ranking import DbmtlConfig, MultiTowerDinConfig
from exporter.config.pb.model_pb2 import ModelConfig as ModelMessage
from exporter.config.schema import Feature, FeatureGroup, ModelConfig

_READERS: Mapping[str, Callable[[ModelMessage], ModelConfig]] = {
    "hstu_match": read_hstu_match,
    "dlrm_hstu": read_dlrm_hstu,
    "dssm": read_dssm,
    "dat": read_dat,
    "mind": read_mind,
    "multi_tower_din": read_multi_tower_din,
    "dbmtl": read_dbmtl,
}

SUPPORTED = tuple(_READERS)


def read(message: ModelMessage) -> ModelConfig:
    """The model of a whole `model_config`, which is of one of the families `SUPPORTED`.

    Raises:
        UnsupportedConfig: it asks for something of its family that Slipway does not build.
        InvalidPipelineConfig: its fields contradict each other.
    """
    return _READERS[message.WhichOneof("model") or ""](message)


def check(model: ModelConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Every group that the model reads is there, of the right kind and width.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
        UnsupportedConfig: a kind of group that the family does not read.
    """
    match model:
        case HstuMatchConfig():
            check_hstu_match(model, features, groups)
        case DlrmHstuConfig():
            check_dlrm_hstu(model, features, groups)
        case DssmConfig() | MindConfig():
            check_match(model, features, groups)
        case MultiTowerDinConfig():
            check_multi_tower_din(model, features, groups)
        case DbmtlConfig():
            check_dbmtl(model, features, groups)
