"""Dense and sparse groups: the input of models that compare a vector of all numbers with one per feature."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.rank_models_pb2 import DLRM, WuKong
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind

DENSE, SPARSE = "dense", "sparse"


@dataclass(frozen=True, kw_only=True)
class DenseAndSparse:
    """Groups that become vectors of one width: all of `dense` through an MLP, each feature of `sparse`."""

    sparse: str  # name of the group
    dense_mlp: MlpConfig | None  # over the group `dense`; None: the model reads no such group

    def reads(self, group: str) -> bool:
        """Return whether the group is one of the two."""
        return group == self.sparse or (group == DENSE and self.dense_mlp is not None)


def read_dense_and_sparse(message: ModelConfig, model: DLRM | WuKong, where: str) -> DenseAndSparse:
    """Read which groups `model` takes: `dense` and `sparse`, or a config's only group, whatever its name.

    Raises:
        InvalidPipelineConfig: there is a group `dense` and no MLP for it.
    """
    names = [group.group_name for group in message.feature_groups]
    if len(names) == 1:
        return DenseAndSparse(sparse=names[0], dense_mlp=None)
    if DENSE not in names:
        return DenseAndSparse(sparse=SPARSE, dense_mlp=None)
    if not model.HasField("dense_mlp"):
        raise_invalid(
            where,
            f"it has no dense_mlp, which its group {DENSE} goes through",
            hint="add the dense_mlp it was trained with",
        )
    return DenseAndSparse(sparse=SPARSE, dense_mlp=read_mlp(model.dense_mlp, f"{where}.dense_mlp"))


def check_dense_and_sparse(
    inputs: DenseAndSparse, features: Sequence[Feature], groups: Sequence[FeatureGroup], where: str
) -> None:
    """Refuse a config in which a group is missing or encodes sequences, or vectors differ in width.

    Raises:
        InvalidPipelineConfig: naming the group or dense_mlp.
    """
    checks = GroupChecks(features, groups, where)
    checks.require_group(inputs.sparse, "its sparse features", GroupKind.DEEP)
    _refuse_encoders(checks.group(inputs.sparse))
    width = checks.require_equal_widths(inputs.sparse, "each feature is compared with each other")
    if inputs.dense_mlp is not None:
        checks.require_group(DENSE, "its dense features", GroupKind.DEEP)
        _refuse_encoders(checks.group(DENSE))
        if inputs.dense_mlp.width != width:
            raise_invalid(
                f"{where}.dense_mlp",
                f"its last layer is {inputs.dense_mlp.width} wide, and the features of group "
                f"{inputs.sparse} {width}",
                hint=f"end hidden_units with {width}, the width of the features that it is compared with",
            )


def _refuse_encoders(group: FeatureGroup) -> None:
    if group.encoders:
        raise_invalid(
            f"feature_groups: {group.name}",
            "it has sequence encoders, and the model takes vectors of single features",
            hint="remove sequence_groups and sequence_encoders",
        )
