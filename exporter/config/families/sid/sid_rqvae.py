"""sid_rqvae (arXiv:2203.01941; as semantic ids, arXiv:2305.05065): codebooks behind an encoder."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.config.blocks.first_group import check_first_group, read_first_group
from exporter.config.blocks.residual_quantizer import SidConfig, read_residual_quantizer
from exporter.config.families.family_spec import FamilySpec
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind

WHERE = "model_config.sid_rqvae"


@dataclass(frozen=True, kw_only=True)
class PairConfig:
    """Groups of the pairs that training contrasts; serving reads neither."""

    vector: str
    flag: str


@dataclass(frozen=True, kw_only=True)
class SidRqvaeConfig(SidConfig):
    """sid_rqvae: the first group's vector, encoded by an MLP, quantised by codebooks.

    Fields that only training reads are left out: forward_mode, rotation_trick, kmeans_init, sinkhorn_config.
    """

    embed_dim: int  # width of the encoded vector
    hidden_dims: tuple[
        int, ...
    ]  # of the encoder, and backwards of the decoder; empty: half the input's width
    pair: PairConfig | None
    family: str = "sid_rqvae"

    def hidden_widths(self, in_features: int) -> tuple[int, ...]:
        """Return the widths of the encoder's hidden layers, for vectors of `in_features` numbers."""
        return self.hidden_dims or (in_features // 2,)


def read_sid_rqvae(message: ModelConfig) -> SidRqvaeConfig:
    """Read the sid_rqvae model of a whole `model_config`; it reads the first feature group.

    Raises:
        UnsupportedConfig: an unknown distance, or candidates that are found in an unknown way.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.sid_rqvae
    if model.embed_dim == 0 or 0 in model.hidden_dims:
        raise_invalid(WHERE, "embed_dim or one of hidden_dims is 0", hint="set every width above 0")
    pair = model.contrastive_config
    return SidRqvaeConfig(
        input=read_first_group(message, WHERE),
        quantizer=read_residual_quantizer(model, WHERE, distance=model.distance_type),
        embed_dim=model.embed_dim,
        hidden_dims=tuple(model.hidden_dims),
        pair=PairConfig(vector=pair.pair_feature_group, flag=pair.pair_flag_feature_group)
        if model.HasField("contrastive_config")
        else None,
    )


def check_sid_rqvae(
    model: SidRqvaeConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Refuse groups that the model could not have been trained on: missing, or of another kind or width.

    Raises:
        InvalidPipelineConfig: naming the group.
    """
    check_first_group(model.input, groups, model.family)
    checks = GroupChecks(features, groups, WHERE)
    width = checks.vector_width(model.input)
    if not model.hidden_dims and width < 2:
        raise_invalid(
            f"{WHERE}.hidden_dims",
            f"it is empty, and half the width of group {model.input}, {width}, is 0",
            hint="list the widths it was trained with",
        )
    if model.pair is None:
        return
    for name, purpose, needed in (
        (model.pair.vector, "pair_feature_group", width),
        (model.pair.flag, "pair_flag_feature_group", 1),
    ):
        checks.require_group(name, purpose, GroupKind.DEEP)
        if (found := checks.vector_width(name)) != needed:
            raise_invalid(
                f"feature_groups: {name}",
                f"it is {found} wide, and {purpose} must be {needed}",
                hint=f"pairs are as wide as group {model.input}, and their flag is one number",
            )


FAMILY = FamilySpec(message="sid_rqvae", kind="sid", read=read_sid_rqvae, check=check_sid_rqvae)
