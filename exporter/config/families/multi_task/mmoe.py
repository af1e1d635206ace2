"""mmoe (Ma et al., KDD 2018): experts over one group, mixed by a gate for every task's tower."""

from dataclasses import dataclass

from exporter.config.blocks.first_group import FirstGroupConfig, check_input, read_first_group
from exporter.config.blocks.mmoe import MmoeConfig, read_mmoe
from exporter.config.blocks.task_towers import TaskTowerConfig, read_task_towers
from exporter.config.families.family_spec import FamilySpec
from exporter.config.pb.model_pb2 import ModelConfig

WHERE = "model_config.mmoe"


@dataclass(frozen=True, kw_only=True)
class MmoeModelConfig(FirstGroupConfig):
    """mmoe: the experts, and a tower for every task."""

    mmoe: MmoeConfig
    tasks: tuple[TaskTowerConfig, ...]
    family: str = "mmoe"


def read_mmoe_model(message: ModelConfig) -> MmoeModelConfig:
    """Read the mmoe model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have, or an unknown activation.
        InvalidPipelineConfig: no experts, no tasks, or fields that contradict each other.
    """
    return MmoeModelConfig(
        input=read_first_group(message, WHERE),
        mmoe=read_mmoe(message.mmoe, WHERE),
        tasks=read_task_towers(message.mmoe.task_towers, WHERE),
    )


FAMILY = FamilySpec(message="mmoe", kind="multi_task", read=read_mmoe_model, check=check_input)
