"""hstu_match: its message to its dataclass, and the feature groups it needs."""

from collections.abc import Sequence

from exporter.config.blocks.mlp_messages import read_mlp
from exporter.config.families.hstu import QUERY_TIME, HstuMatchConfig, Similarity
from exporter.config.families.hstu_groups import GroupInputs
from exporter.config.families.hstu_messages import read_hstu, read_uih_preprocessor
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.tower_pb2 import Similarity as SimilarityMessage
from exporter.config.refusals import invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.errors import UnsupportedConfig

WHERE = "model_config.hstu_match"


def read_hstu_match(config: ModelConfig) -> HstuMatchConfig:
    """The model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a preprocessor that the family does not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    message = config.hstu_match
    tower = message.user_tower
    where = f"{WHERE}.user_tower.hstu"
    preprocessor = tower.hstu.input_preprocessor.WhichOneof("input_preprocessor")
    if preprocessor != "uih_preprocessor":
        raise UnsupportedConfig(
            f"{WHERE}: input_preprocessor {preprocessor} is not for a user tower, which sees no candidates",
            hint="hstu_match takes uih_preprocessor",
            where=f"{where}.input_preprocessor",
        )
    if message.in_batch_negative:
        invalid(
            WHERE,
            "in_batch_negative does not go with hstu_match",
            hint="leave it out, and train with a sampler",
        )
    if tower.max_seq_len == 0:
        invalid(f"{WHERE}.user_tower", "max_seq_len is 0", hint="set the longest history")
    if message.output_dim < 0:
        invalid(WHERE, f"output_dim is {message.output_dim}", hint="set a width, or 0 for no projection")
    item = message.item_tower
    uih = read_uih_preprocessor(
        tower.hstu.input_preprocessor.uih_preprocessor, f"{where}.input_preprocessor.uih_preprocessor"
    )
    return HstuMatchConfig(
        user_input=tower.input,
        hstu=read_hstu(tower.hstu, uih, where),
        max_seq_len=tower.max_seq_len,
        item_input=item.input,
        item_mlp=read_mlp(item.mlp, f"{WHERE}.item_tower.mlp") if item.HasField("mlp") else None,
        output_dim=message.output_dim,
        similarity=Similarity(SimilarityMessage.Name(message.similarity)),
        timestamps_ascending=message.sequence_timestamp_is_ascending,
    )


def check_hstu_match(
    model: HstuMatchConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Every group that a tower reads is there, of the right kind and width.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    inputs = GroupInputs(features, groups, WHERE)
    history = model.hstu.history
    if model.user_input != history:
        invalid(
            f"{WHERE}.user_tower",
            f"its input is group {model.user_input}, but its history is read from group {history}",
            hint="name the group like hstu.name, or `uih` where hstu has no name",
        )
    inputs.history(model.hstu)
    inputs.jagged(model.item_input, "the candidate items")
    if inputs.has(QUERY_TIME):
        inputs.numbers(QUERY_TIME, "the time of the request", GroupKind.DEEP)
    inputs.contextual(model.hstu)
    inputs.refuse_padding()
    _check_widths(model, inputs)


def _check_widths(model: HstuMatchConfig, inputs: GroupInputs) -> None:
    """Without an output projection both towers must end in the same width."""
    user = model.hstu.stu.embedding_dim
    item = model.item_mlp.hidden_units[-1] if model.item_mlp else inputs.width(model.item_input)
    if model.output_dim == 0 and user != item:
        invalid(
            WHERE,
            f"output_dim is 0, so the towers' own widths are compared, and they differ: user {user} "
            f"(stu.embedding_dim), item {item} "
            f"({'last of item_tower.mlp.hidden_units' if model.item_mlp else f'group {model.item_input}'})",
            hint="set output_dim, or make the two equal",
        )
