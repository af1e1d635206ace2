"""dcn_v2 (Wang et al. 2021, arXiv:2008.13535): a cross network of low rank, and an MLP beside it."""

from dataclasses import dataclass

from exporter.config.blocks.first_group import FirstGroupConfig, check_input, read_first_group
from exporter.config.blocks.mlp import MlpConfig, read_mlp, read_optional_mlp
from exporter.config.blocks.tasks import TaskConfig, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.refusals import raise_invalid

WHERE = "model_config.dcn_v2"


@dataclass(frozen=True, kw_only=True)
class DcnV2Config(FirstGroupConfig):
    """dcn_v2: a cross network behind the backbone, and an MLP over the group itself."""

    backbone: MlpConfig | None
    cross_layers: int
    low_rank: int
    deep: MlpConfig | None
    final: MlpConfig
    task: TaskConfig
    family: str = "dcn_v2"


def read_dcn_v2(message: ModelConfig) -> DcnV2Config:
    """Read the dcn_v2 model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have, or an unknown activation.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.dcn_v2
    if model.cross.low_rank == 0:
        raise_invalid(f"{WHERE}.cross", "low_rank is 0", hint="set it above 0, or leave it out for 32")
    return DcnV2Config(
        input=read_first_group(message, WHERE),
        backbone=read_optional_mlp(model.backbone, f"{WHERE}.backbone", is_set=model.HasField("backbone")),
        cross_layers=model.cross.cross_num,
        low_rank=model.cross.low_rank,
        deep=read_optional_mlp(model.deep, f"{WHERE}.deep", is_set=model.HasField("deep")),
        final=read_mlp(model.final, f"{WHERE}.final"),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


FAMILY = FamilySpec(message="dcn_v2", kind="rank", read=read_dcn_v2, check=check_input)
