"""ple (Tang et al., RecSys 2020): layers of experts, some of one task and some shared, mixed by gates."""

from dataclasses import dataclass

from exporter.config.blocks.first_group import FirstGroupConfig, check_input, read_first_group
from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.blocks.task_towers import TaskTowerConfig, read_task_towers
from exporter.config.families.family_spec import FamilySpec
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.module_pb2 import ExtractionNetwork
from exporter.config.refusals import raise_invalid

WHERE = "model_config.ple"


@dataclass(frozen=True, kw_only=True)
class ExtractionConfig:
    """One extraction network: as many experts for every task, and those that all tasks share."""

    task_experts: int  # of each task
    task_expert_mlp: MlpConfig
    shared_experts: int
    shared_expert_mlp: MlpConfig

    @property
    def width(self) -> int:
        """Width of every task's output, in values per row."""
        return self.task_expert_mlp.width


@dataclass(frozen=True, kw_only=True)
class PleConfig(FirstGroupConfig):
    """ple: extraction networks one after another, and a tower for every task."""

    extractions: tuple[ExtractionConfig, ...]
    tasks: tuple[TaskTowerConfig, ...]
    family: str = "ple"


def read_ple(message: ModelConfig) -> PleConfig:
    """Read the ple model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have, or an unknown activation.
        InvalidPipelineConfig: no tasks, or an extraction network whose fields contradict each other.
    """
    networks = message.ple.extraction_networks
    return PleConfig(
        input=read_first_group(message, WHERE),
        extractions=tuple(
            _read_extraction(network, is_last=position == len(networks) - 1)
            for position, network in enumerate(networks)
        ),
        tasks=read_task_towers(message.ple.task_towers, WHERE),
    )


def _read_extraction(message: ExtractionNetwork, *, is_last: bool) -> ExtractionConfig:
    where = f"{WHERE}.extraction_networks: {message.network_name}"
    if message.expert_num_per_task + message.share_num == 0:
        raise_invalid(
            where, "expert_num_per_task and share_num are both 0", hint="set at least one of them above 0"
        )
    config = ExtractionConfig(
        task_experts=message.expert_num_per_task,
        task_expert_mlp=read_mlp(message.task_expert_net, f"{where}.task_expert_net"),
        shared_experts=message.share_num,
        shared_expert_mlp=read_mlp(message.share_expert_net, f"{where}.share_expert_net"),
    )
    task, shared = config.task_expert_mlp.width, config.shared_expert_mlp.width
    # The last network has no shared output: without shared experts, nothing reads the width of theirs.
    if task != shared and not (is_last and config.shared_experts == 0):
        raise_invalid(
            where,
            f"task_expert_net ends in a width of {task} and share_expert_net of {shared}, and gates mix both",
            hint="end both in the same width",
        )
    return config


FAMILY = FamilySpec(message="ple", kind="multi_task", read=read_ple, check=check_input)
