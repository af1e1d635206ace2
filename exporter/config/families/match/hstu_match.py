"""hstu_match: a user tower of HSTU layers over the history, and an item tower over the candidate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from exporter.config.blocks.match_towers import Similarity
from exporter.config.blocks.mlp import MlpConfig, read_optional_mlp
from exporter.config.families.family_spec import FamilySpec
from exporter.config.family import TWO_TOWERS, FamilyConfig
from exporter.config.hstu.encoder import QUERY_TIME, HstuConfig
from exporter.config.hstu.encoder_messages import read_hstu, read_uih_preprocessor
from exporter.config.hstu.groups import HstuGroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.tower_pb2 import Similarity as SimilarityMessage
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.errors import UnsupportedConfig
from exporter.spec import TowerName

WHERE = "model_config.hstu_match"


@dataclass(frozen=True, kw_only=True)
class HstuMatchConfig(FamilyConfig):
    """hstu_match: a user tower over the history, and an item tower over the candidate."""

    user_input: str  # group name
    hstu: HstuConfig
    max_seq_len: int
    item_input: str  # group name
    item_mlp: MlpConfig | None
    output_dim: int  # width of the projection behind each tower; 0: no projection
    similarity: Similarity
    timestamps_ascending: bool  # False: the newest event of a row stands first
    family: str = "hstu_match"
    towers: ClassVar[tuple[TowerName, ...]] = TWO_TOWERS
    trains_on_candidate_sequences: ClassVar[bool] = True

    @property
    def groups_in_step(self) -> tuple[tuple[str, ...], ...]:
        return (self.hstu.history_groups,)

    def attends(self, tower: TowerName) -> bool:
        return tower is TowerName.USER

    def reads(self, tower: TowerName, group: str) -> bool:
        """Return whether the tower reads the group; the user tower reads all groups but the candidates'."""
        return (group == self.item_input) == (tower is TowerName.ITEM)


def read_hstu_match(message: ModelConfig) -> HstuMatchConfig:
    """Read the hstu_match model of a whole `model_config`.

    Raises:
        UnsupportedConfig: the preprocessor is not one of a user tower.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.hstu_match
    tower, item = model.user_tower, model.item_tower
    where = f"{WHERE}.user_tower.hstu"
    preprocessor = tower.hstu.input_preprocessor.WhichOneof("input_preprocessor")
    if preprocessor != "uih_preprocessor":
        raise UnsupportedConfig(
            f"{WHERE}: input_preprocessor {preprocessor} is not for a user tower, which sees no candidates",
            hint="hstu_match takes uih_preprocessor",
            where=f"{where}.input_preprocessor",
        )
    if model.in_batch_negative:
        raise_invalid(
            WHERE,
            "in_batch_negative does not go with hstu_match",
            hint="leave it out, and train with a sampler",
        )
    if tower.max_seq_len == 0:
        raise_invalid(
            f"{WHERE}.user_tower", "max_seq_len is 0", hint="set it to the length of the longest history"
        )
    if model.output_dim < 0:
        raise_invalid(WHERE, f"output_dim is {model.output_dim}", hint="set a width, or 0 for no projection")
    uih = read_uih_preprocessor(
        tower.hstu.input_preprocessor.uih_preprocessor, f"{where}.input_preprocessor.uih_preprocessor"
    )
    return HstuMatchConfig(
        user_input=tower.input,
        hstu=read_hstu(tower.hstu, uih, where),
        max_seq_len=tower.max_seq_len,
        item_input=item.input,
        item_mlp=read_optional_mlp(item.mlp, f"{WHERE}.item_tower.mlp", is_set=item.HasField("mlp")),
        output_dim=model.output_dim,
        similarity=Similarity(SimilarityMessage.Name(model.similarity)),
        timestamps_ascending=model.sequence_timestamp_is_ascending,
    )


def check_hstu_match(
    model: HstuMatchConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Refuse a config in which a group that a tower reads is missing, or not of the kind or width it needs.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    checks = HstuGroupChecks(features, groups, WHERE)
    history = model.hstu.history
    if model.user_input != history:
        raise_invalid(
            f"{WHERE}.user_tower",
            f"its input is group {model.user_input}, but its history is read from group {history}",
            hint="name the group like hstu.name, or `uih` where hstu has no name",
        )
    checks.require_history(model.hstu)
    checks.require_sequences(model.item_input, "the candidate items")
    if checks.has_group(QUERY_TIME):
        checks.require_number(QUERY_TIME, "the time of the request", GroupKind.DEEP)
    checks.check_contextual(model.hstu)
    checks.refuse_padding()
    _check_widths(model, checks)


def _check_widths(model: HstuMatchConfig, checks: HstuGroupChecks) -> None:
    """Refuse towers of different width without a projection, because their own outputs are compared."""
    user = model.hstu.stu.embedding_dim
    item = model.item_mlp.width if model.item_mlp else checks.features_width(model.item_input)
    if model.output_dim == 0 and user != item:
        raise_invalid(
            WHERE,
            f"output_dim is 0, so the towers' own widths are compared, and they differ: user {user} "
            f"(stu.embedding_dim), item {item} "
            f"({'last of item_tower.mlp.hidden_units' if model.item_mlp else f'group {model.item_input}'})",
            hint="set output_dim, or make the two equal",
        )


FAMILY = FamilySpec(message="hstu_match", kind="match", read=read_hstu_match, check=check_hstu_match)
