"""dssm_v2 (Huang et al., CIKM 2013): the towers of dssm over one embedding group that both of them read."""

from dataclasses import dataclass
from typing import ClassVar

from exporter.config.families.family_spec import FamilySpec
from exporter.config.families.match.dssm import DssmConfig, check_dssm, read_towers
from exporter.config.pb.model_pb2 import ModelConfig


@dataclass(frozen=True, kw_only=True)
class DssmV2Config(DssmConfig):
    """dssm_v2: dssm with one set of tables for both towers; each tower is served with those that it reads."""

    family: str = "dssm_v2"
    tables_are_shared: ClassVar[bool] = True


def read_dssm_v2(message: ModelConfig) -> DssmV2Config:
    """Read the dssm_v2 model of a whole `model_config`."""
    return read_towers(DssmV2Config, message.dssm_v2, "model_config.dssm_v2")


FAMILY = FamilySpec(message="dssm_v2", kind="match", read=read_dssm_v2, check=check_dssm)
