"""dlrm_hstu: HSTU layers over history and candidates, and several ranking tasks per candidate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from exporter.config.blocks.mlp import MlpConfig, read_optional_mlp
from exporter.config.blocks.tasks import TaskConfig, check_task_names, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.config.hstu.encoder import (
    CANDIDATE,
    CANDIDATE_TIMESTAMP,
    CONTEXTUAL,
    ContentEncoderKind,
    ContextualPreprocessorConfig,
    HstuConfig,
)
from exporter.config.hstu.encoder_messages import read_contextual_preprocessor, read_hstu
from exporter.config.hstu.groups import HstuGroupChecks
from exporter.config.pb.hstu_pb2 import HSTU, GRInputPreprocessor
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.multi_task_models_pb2 import DlrmHSTU, UltraHSTU
from exporter.config.pb.tower_pb2 import FusionMTLTower
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.errors import UnsupportedConfig
from exporter.spec import TowerName


@dataclass(frozen=True, kw_only=True)
class DlrmHstuConfig(FamilyConfig):
    """dlrm_hstu: history and candidates in one sequence, and several tasks per candidate.

    dlrm_hstu has one transducer; ultra_hstu may have several, each over a history of its own.
    """

    transducers: tuple[HstuConfig, ...]
    max_seq_len: int
    item_embedding_hidden_dim: int
    tower_mlp: MlpConfig | None
    tasks: tuple[TaskConfig, ...]
    timestamps_ascending: bool  # False: the newest event of a row stands first
    concat_contextual: bool  # True: all contextual features are one element, not one each
    family: str = "dlrm_hstu"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER
    candidate_group: ClassVar[str | None] = CANDIDATE

    @property
    def groups_in_step(self) -> tuple[tuple[str, ...], ...]:
        return *(hstu.history_groups for hstu in self.transducers), (CANDIDATE, CANDIDATE_TIMESTAMP)

    @property
    def width(self) -> int:
        """Width of a candidate's vector, to which every transducer adds its own."""
        return sum(hstu.stu.embedding_dim for hstu in self.transducers)

    @property
    def where(self) -> str:
        """Name the place of the model's settings in the config, for errors."""
        return f"model_config.{self.family}"

    def attends(self, _tower: TowerName) -> bool:
        return True

    def reads(self, _tower: TowerName, _group: str) -> bool:
        return True


ConfigT = TypeVar("ConfigT", bound=DlrmHstuConfig)


def read_dlrm_hstu(message: ModelConfig) -> DlrmHstuConfig:
    """Read the dlrm_hstu model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a preprocessor, a loss or a dropout that the family does not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model, where = message.dlrm_hstu, "model_config.dlrm_hstu"
    return read_transducers(DlrmHstuConfig, message, model, {f"{where}.hstu": model.hstu}, where)


def read_transducers(
    kind: type[ConfigT],
    message: ModelConfig,
    model: DlrmHSTU | UltraHSTU,
    transducers: Mapping[str, HSTU],
    where: str,
) -> ConfigT:
    """Read a model over transducers, which are given by their places in the config.

    Raises:
        UnsupportedConfig: a preprocessor, a loss or a dropout that the family does not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    if message.HasField("variational_dropout"):
        raise UnsupportedConfig(
            f"{where}: variational_dropout does not go with a model whose groups are jagged sequences",
            hint="leave variational_dropout out",
            where="model_config.variational_dropout",
        )
    for name in ("max_seq_len", "item_embedding_hidden_dim"):
        if getattr(model, name) == 0:
            raise_invalid(where, f"{name} is 0", hint="set it above 0")
    tower, its_place = model.fusion_mtl_tower, f"{where}.fusion_mtl_tower"
    return kind(
        transducers=tuple(
            read_hstu(hstu, _read_preprocessor(hstu.input_preprocessor, f"{place}.input_preprocessor"), place)
            for place, hstu in transducers.items()
        ),
        max_seq_len=model.max_seq_len,
        item_embedding_hidden_dim=model.item_embedding_hidden_dim,
        tower_mlp=read_optional_mlp(tower.mlp, f"{its_place}.mlp", is_set=tower.HasField("mlp")),
        tasks=_read_tasks(tower, its_place),
        timestamps_ascending=model.sequence_timestamp_is_ascending,
        concat_contextual=model.concat_contextual_features,
    )


def check_dlrm_hstu(
    model: DlrmHstuConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Refuse a config in which a group that the model reads is missing, or not of the kind or width it needs.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    checks = HstuGroupChecks(features, groups, model.where)
    for hstu in model.transducers:
        checks.require_history(hstu)
    checks.require_sequences(CANDIDATE, "the candidate items")
    checks.require_number(CANDIDATE_TIMESTAMP, "the time of the request", GroupKind.JAGGED_SEQUENCE)
    if not checks.has_group(CONTEXTUAL):
        checks.require_group(CONTEXTUAL, "the user's context", GroupKind.DEEP)
    for hstu in model.transducers:
        checks.check_contextual(hstu, concatenated=model.concat_contextual)
        _check_content(hstu, checks)
    checks.refuse_padding()


def _read_preprocessor(message: GRInputPreprocessor, where: str) -> ContextualPreprocessorConfig:
    match message.WhichOneof("input_preprocessor"):
        case "contextual_preprocessor":
            return read_contextual_preprocessor(
                message.contextual_preprocessor, f"{where}.contextual_preprocessor"
            )
        case "contextual_interleave_preprocessor":
            return read_contextual_preprocessor(
                message.contextual_interleave_preprocessor, f"{where}.contextual_interleave_preprocessor"
            )
        case kind:
            raise UnsupportedConfig(
                f"{where} {kind} has no place for candidates",
                hint="the family takes contextual_preprocessor or contextual_interleave_preprocessor",
                where=where,
            )


def _read_tasks(tower: FusionMTLTower, where: str) -> tuple[TaskConfig, ...]:
    if not tower.task_configs:
        raise_invalid(where, "it has no task_configs", hint="add the tasks it was trained with")
    check_task_names((task.task_name for task in tower.task_configs), where)
    return tuple(
        read_task(task.losses, task.num_class, f"{where}: task {task.task_name}", name=task.task_name)
        for task in tower.task_configs
    )


def _check_content(hstu: HstuConfig, checks: HstuGroupChecks) -> None:
    """Refuse candidates too narrow for the encoder, which can only cut candidates or pad events."""
    preprocessor = hstu.preprocessor
    assert isinstance(preprocessor, ContextualPreprocessorConfig)
    history, candidates = checks.features_width(hstu.history), checks.features_width(CANDIDATE)
    narrowest = {ContentEncoderKind.SLICE: history, ContentEncoderKind.PAD: history + 1}
    kind = preprocessor.content_encoder.kind
    if candidates < narrowest.get(kind, 0):
        raise_invalid(
            f"{checks.where}.hstu",
            f"{kind} cannot join candidates of width {candidates} to events of width {history} of group "
            f"{hstu.history}",
            hint=f"group {CANDIDATE} must be at least as wide as the history for slice_content_encoder, "
            "wider for pad_content_encoder; mlp_content_encoder takes any",
        )


FAMILY = FamilySpec(message="dlrm_hstu", kind="multi_task", read=read_dlrm_hstu, check=check_dlrm_hstu)
