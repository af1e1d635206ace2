"""dlrm_hstu: its message to its dataclass, and the feature groups it needs."""

from collections.abc import Sequence

from exporter.config.blocks.mlp_messages import read_mlp
from exporter.config.blocks.task_messages import check_names, read_task
from exporter.config.blocks.tasks import TaskConfig
from exporter.config.families.hstu import (
    CANDIDATE,
    CANDIDATE_TIMESTAMP,
    CONTEXTUAL,
    ContentEncoderKind,
    ContextualPreprocessorConfig,
    DlrmHstuConfig,
)
from exporter.config.families.hstu_groups import GroupInputs
from exporter.config.families.hstu_messages import read_contextual_preprocessor, read_hstu
from exporter.config.pb.hstu_pb2 import GRInputPreprocessor
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.tower_pb2 import FusionMTLTower
from exporter.config.refusals import invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.errors import UnsupportedConfig

WHERE = "model_config.dlrm_hstu"


def read_dlrm_hstu(message: ModelConfig) -> DlrmHstuConfig:
    """The model of a whole `model_config`: its own message, and what stands beside it.

    Raises:
        UnsupportedConfig: a preprocessor, a loss or a dropout that the family does not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    if message.HasField("variational_dropout"):
        raise UnsupportedConfig(
            f"{WHERE}: variational_dropout does not go with dlrm_hstu, whose groups are jagged sequences",
            hint="leave variational_dropout out",
            where="model_config.variational_dropout",
        )
    model = message.dlrm_hstu
    for name in ("max_seq_len", "item_embedding_hidden_dim"):
        if getattr(model, name) == 0:
            invalid(WHERE, f"{name} is 0", hint="set it above 0")
    tower = model.fusion_mtl_tower
    where = f"{WHERE}.fusion_mtl_tower"
    return DlrmHstuConfig(
        hstu=read_hstu(
            model.hstu,
            _read_preprocessor(model.hstu.input_preprocessor, f"{WHERE}.hstu.input_preprocessor"),
            f"{WHERE}.hstu",
        ),
        max_seq_len=model.max_seq_len,
        item_embedding_hidden_dim=model.item_embedding_hidden_dim,
        tower_mlp=read_mlp(tower.mlp, f"{where}.mlp") if tower.HasField("mlp") else None,
        tasks=_read_tasks(tower, where),
        timestamps_ascending=model.sequence_timestamp_is_ascending,
        concat_contextual=model.concat_contextual_features,
    )


def check_dlrm_hstu(
    model: DlrmHstuConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Every group that the model reads is there, of the right kind and width.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    inputs = GroupInputs(features, groups, WHERE)
    inputs.history(model.hstu)
    inputs.jagged(CANDIDATE, "the candidate items")
    inputs.numbers(CANDIDATE_TIMESTAMP, "the time of the request", GroupKind.JAGGED_SEQUENCE)
    if not inputs.has(CONTEXTUAL):
        inputs.require(CONTEXTUAL, "the user's context", GroupKind.DEEP)
    inputs.contextual(model.hstu, concatenated=model.concat_contextual)
    inputs.refuse_padding()
    _check_content(model, inputs)


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
                f"{WHERE}: input_preprocessor {kind} has no place for candidates",
                hint="dlrm_hstu takes contextual_preprocessor or contextual_interleave_preprocessor",
                where=where,
            )


def _read_tasks(tower: FusionMTLTower, where: str) -> tuple[TaskConfig, ...]:
    if not tower.task_configs:
        invalid(where, "it has no task_configs", hint="add the tasks it was trained with")
    check_names((task.task_name for task in tower.task_configs), where)
    return tuple(
        read_task(task.losses, task.num_class, f"{where}: task {task.task_name}", name=task.task_name)
        for task in tower.task_configs
    )


def _check_content(model: DlrmHstuConfig, inputs: GroupInputs) -> None:
    """A content encoder cuts candidates down or fills events up, and cannot do the reverse."""
    preprocessor = model.hstu.preprocessor
    assert isinstance(preprocessor, ContextualPreprocessorConfig)
    history, candidates = inputs.width(model.hstu.history), inputs.width(CANDIDATE)
    narrowest = {ContentEncoderKind.SLICE: history, ContentEncoderKind.PAD: history + 1}
    kind = preprocessor.content_encoder.kind
    if candidates < narrowest.get(kind, 0):
        invalid(
            f"{WHERE}.hstu.input_preprocessor",
            f"{kind} cannot join candidates of width {candidates} to events of width {history}",
            hint=f"group {CANDIDATE} must be at least as wide as the history for slice_content_encoder, "
            "wider for pad_content_encoder; mlp_content_encoder takes any",
        )
