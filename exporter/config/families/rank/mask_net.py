"""mask_net (Wang et al. 2021, arXiv:2102.07619): a MaskNet over one group, and a linear layer."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.config.blocks.first_group import FirstGroupConfig, check_input, read_first_group
from exporter.config.blocks.mask_net import MaskNetConfig, check_mask_net_width, read_mask_net
from exporter.config.blocks.tasks import TaskConfig, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup

WHERE = "model_config.mask_net"
_MODULE = f"{WHERE}.mask_net_module"


@dataclass(frozen=True, kw_only=True)
class MaskNetModelConfig(FirstGroupConfig):
    """mask_net: a MaskNet with an MLP on top."""

    mask_net: MaskNetConfig
    task: TaskConfig
    family: str = "mask_net"


def read_mask_net_model(message: ModelConfig) -> MaskNetModelConfig:
    """Read the mask_net model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have, or an unknown activation.
        InvalidPipelineConfig: no top_mlp, or fields that contradict each other.
    """
    module = message.mask_net.mask_net_module
    if not module.HasField("top_mlp"):
        raise_invalid(
            _MODULE,
            "it has no top_mlp, whose output this model reads",
            hint="add the one it was trained with",
        )
    return MaskNetModelConfig(
        input=read_first_group(message, WHERE),
        mask_net=read_mask_net(module, _MODULE),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


def check_mask_net_model(
    model: MaskNetModelConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Refuse a first group that is not one vector per row, or too narrow for the MaskNet.

    Raises:
        InvalidPipelineConfig: naming the group or the MaskNet's field.
    """
    check_input(model, features, groups)
    width = GroupChecks(features, groups, WHERE).vector_width(model.input)
    check_mask_net_width(model.mask_net, width, _MODULE)


FAMILY = FamilySpec(message="mask_net", kind="rank", read=read_mask_net_model, check=check_mask_net_model)
