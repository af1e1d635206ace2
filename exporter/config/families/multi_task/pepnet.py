"""pepnet (Chang et al., KDD 2023, arXiv:2302.01115): gates scale the embeddings and every task's layers.

The group `all` has the features. Gates from the group `domain` scale them (EPNet), if it is there, and gates
from the group `uia` (user, item and author) scale the layers of every task (PPNet), if that is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.blocks.task_towers import TaskTowerConfig, read_task_towers
from exporter.config.families.family_spec import FamilySpec
from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.module_pb2 import MLP
from exporter.config.pb.multi_task_models_pb2 import PEPNet
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.spec import TowerName

WHERE = "model_config.pepnet"
ALL, DOMAIN, UIA = "all", "domain", "uia"


@dataclass(frozen=True, kw_only=True)
class EpnetConfig:
    """EPNet: a gate over the group `domain` and the features, which scales the features."""

    gamma: float  # largest factor
    hidden_unit: int | None = None  # width between the gate's layers; None: that of the features


@dataclass(frozen=True, kw_only=True)
class PpnetConfig:
    """PPNet: an MLP for every task, each layer scaled by a gate over the group `uia` and the features."""

    gamma: float  # largest factor
    layers: MlpConfig


@dataclass(frozen=True, kw_only=True)
class PepnetConfig(FamilyConfig):
    """pepnet: EPNet, PPNet, and a tower for every task, or for every task in every domain."""

    epnet: EpnetConfig | None
    ppnet: PpnetConfig | None
    tasks: tuple[TaskTowerConfig, ...]
    domains: int | None = None  # None: one tower per task
    family: str = "pepnet"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    def reads(self, _tower: TowerName, group: str) -> bool:
        return (
            group == ALL
            or (group == DOMAIN and self.epnet is not None)
            or (group == UIA and self.ppnet is not None)
        )

    @property
    def task_towers(self) -> tuple[tuple[TaskTowerConfig, ...], ...]:
        """Towers of each task; those for domains are named after the task and the domain's number."""
        if self.domains is None:
            return tuple((tower,) for tower in self.tasks)
        return tuple(
            tuple(
                replace(tower, task=replace(tower.task, name=f"{tower.task.name}_{domain}"))
                for domain in range(self.domains)
            )
            for tower in self.tasks
        )


def read_pepnet(message: ModelConfig) -> PepnetConfig:
    """Read the pepnet model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have, or an unknown activation.
        InvalidPipelineConfig: no tasks, or fields that contradict each other.
    """
    model = message.pepnet
    groups = {group.group_name for group in message.feature_groups}
    by_domain = bool(model.domain_input_name)
    if by_domain and model.task_domain_num == 0:
        raise_invalid(
            WHERE, "domain_input_name is set and task_domain_num is 0", hint="set task_domain_num above 0"
        )
    return PepnetConfig(
        epnet=_read_epnet(model) if DOMAIN in groups else None,
        ppnet=_read_ppnet(model) if UIA in groups else None,
        tasks=read_task_towers(model.task_towers, WHERE),
        domains=model.task_domain_num if by_domain else None,
    )


def check_pepnet(model: PepnetConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a config without the group `all`, and groups that are not one vector per row.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    checks = GroupChecks(features, groups, WHERE)
    checks.require_group(ALL, "the features", GroupKind.DEEP)
    if model.epnet is not None:
        checks.require_group(DOMAIN, "EPNet", GroupKind.DEEP)
    if model.ppnet is not None:
        checks.require_group(UIA, "PPNet", GroupKind.DEEP)


def _read_epnet(model: PEPNet) -> EpnetConfig:
    is_set = model.HasField("epnet_hidden_unit")
    if is_set and model.epnet_hidden_unit == 0:
        raise_invalid(
            WHERE, "epnet_hidden_unit is 0", hint="set it above 0, or leave it out for the features' width"
        )
    return EpnetConfig(gamma=model.epnet_gamma, hidden_unit=model.epnet_hidden_unit if is_set else None)


def _read_ppnet(model: PEPNet) -> PpnetConfig:
    if not model.ppnet_hidden_units:
        raise_invalid(
            WHERE,
            f"there is a group {UIA}, and no ppnet_hidden_units for the layers that it scales",
            hint="list the width of every layer, or delete the group",
        )
    if not model.ppnet_activation.strip():
        raise_invalid(WHERE, "ppnet_activation is empty", hint="leave it out for nn.ReLU")
    if len(model.ppnet_dropout_ratio) not in (0, 1, len(model.ppnet_hidden_units)):
        raise_invalid(
            WHERE,
            f"ppnet_dropout_ratio has {len(model.ppnet_dropout_ratio)} values for "
            f"{len(model.ppnet_hidden_units)} ppnet_hidden_units",
            hint="give one for every layer, one for all, or none",
        )
    layers = MLP(hidden_units=model.ppnet_hidden_units, activation=model.ppnet_activation)
    return PpnetConfig(gamma=model.ppnet_gamma, layers=read_mlp(layers, f"{WHERE}.ppnet_hidden_units"))


FAMILY = FamilySpec(message="pepnet", kind="multi_task", read=read_pepnet, check=check_pepnet)
