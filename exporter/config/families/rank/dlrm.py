"""dlrm (Naumov et al. 2019, arXiv:1906.00091): dot products of pairs of features under an MLP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from exporter.config.blocks.dense_and_sparse import (
    DenseAndSparse,
    check_dense_and_sparse,
    read_dense_and_sparse,
)
from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.blocks.tasks import TaskConfig, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup
from exporter.spec import TowerName

WHERE = "model_config.dlrm"


@dataclass(frozen=True, kw_only=True)
class DlrmConfig(FamilyConfig):
    """dlrm: dot products of all pairs of features, and an MLP over them and the features."""

    inputs: DenseAndSparse
    appends_sparse: bool  # arch_with_sparse: the MLP reads the sparse features as well
    final: MlpConfig
    task: TaskConfig
    family: str = "dlrm"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    def reads(self, _tower: TowerName, group: str) -> bool:
        return self.inputs.reads(group)


def read_dlrm(message: ModelConfig) -> DlrmConfig:
    """Read the dlrm model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.dlrm
    return DlrmConfig(
        inputs=read_dense_and_sparse(message, model, WHERE),
        appends_sparse=model.arch_with_sparse,
        final=read_mlp(model.final, f"{WHERE}.final"),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


def check_dlrm(model: DlrmConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a config in which a group is missing, its widths do not fit, or nothing is left to read.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    check_dense_and_sparse(model.inputs, features, groups, WHERE)
    [sparse] = [group for group in groups if group.name == model.inputs.sparse]
    if len(sparse.features) == 1 and model.inputs.dense_mlp is None and not model.appends_sparse:
        raise_invalid(
            WHERE,
            f"group {sparse.name} has one feature, which makes no pair, and arch_with_sparse is false",
            hint="name more features, or set arch_with_sparse",
        )


FAMILY = FamilySpec(message="dlrm", kind="rank", read=read_dlrm, check=check_dlrm)
