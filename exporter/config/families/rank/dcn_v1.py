"""dcn_v1 (Wang et al. 2017, arXiv:1708.05123): a cross network and an MLP over one group, side by side."""

from dataclasses import dataclass

from exporter.config.blocks.first_group import FirstGroupConfig, check_input, read_first_group
from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.blocks.tasks import TaskConfig, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.pb.model_pb2 import ModelConfig

WHERE = "model_config.dcn_v1"


@dataclass(frozen=True, kw_only=True)
class DcnV1Config(FirstGroupConfig):
    """dcn_v1: the cross network's and the MLP's outputs, concatenated, go through another MLP."""

    cross_layers: int
    deep: MlpConfig
    final: MlpConfig
    task: TaskConfig
    family: str = "dcn_v1"


def read_dcn_v1(message: ModelConfig) -> DcnV1Config:
    """Read the dcn_v1 model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have, or an unknown activation.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.dcn_v1
    return DcnV1Config(
        input=read_first_group(message, WHERE),
        cross_layers=model.cross.cross_num,
        deep=read_mlp(model.deep, f"{WHERE}.deep"),
        final=read_mlp(model.final, f"{WHERE}.final"),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


FAMILY = FamilySpec(message="dcn_v1", kind="rank", read=read_dcn_v1, check=check_input)
