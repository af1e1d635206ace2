"""hstu_match: its message to its dataclass, and the feature groups it needs."""

from collections.abc import Sequence
from dataclasses import replace

from exporter.config.hstu import HstuMatchConfig, Similarity
from exporter.config.hstu_messages import invalid, read_hstu, read_mlp
from exporter.config.pb.match_models_pb2 import HSTUMatch
from exporter.config.pb.tower_pb2 import Similarity as SimilarityMessage
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig

WHERE = "model_config.hstu_match"
CONTEXTUAL = "contextual"
QUERY_TIME = "query_time"


def read_hstu_match(message: HSTUMatch) -> HstuMatchConfig:
    tower = message.user_tower
    preprocessor = tower.hstu.input_preprocessor.WhichOneof("input_preprocessor")
    if preprocessor != "uih_preprocessor":
        raise UnsupportedConfig(
            f"{WHERE}: input_preprocessor {preprocessor} is not for a user tower, which sees no candidates",
            hint="hstu_match takes uih_preprocessor",
            where=f"{WHERE}.user_tower.hstu.input_preprocessor",
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
    return HstuMatchConfig(
        user_input=tower.input,
        hstu=read_hstu(
            tower.hstu, tower.hstu.input_preprocessor.uih_preprocessor, f"{WHERE}.user_tower.hstu"
        ),
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
    inputs = _Inputs(features, groups)
    history = history_name(model)
    if model.user_input != history:
        invalid(
            f"{WHERE}.user_tower",
            f"its input is group {model.user_input}, but its history is read from group {history}",
            hint="name the group like hstu.name, or `uih` where hstu has no name",
        )
    inputs.jagged(history, "the user's history")
    inputs.jagged(model.item_input, "the candidate items")
    inputs.numbers(f"{history}_timestamp", "the times of the history", GroupKind.JAGGED_SEQUENCE)
    encoder = model.hstu.preprocessor.action_encoder
    if encoder is not None:
        inputs.numbers(f"{history}_action", "action_encoder", GroupKind.JAGGED_SEQUENCE)
    if encoder is not None and encoder.watchtime_thresholds:
        inputs.numbers(f"{history}_watchtime", "watchtime_to_action_thresholds", GroupKind.JAGGED_SEQUENCE)
    if inputs.has(QUERY_TIME):
        inputs.numbers(QUERY_TIME, "the time of the request", GroupKind.DEEP)
    _check_contextual(model, inputs)
    _check_widths(model, inputs)


def history_name(model: HstuMatchConfig) -> str:
    return model.hstu.name or "uih"


def with_history_lengths_shared(
    model: HstuMatchConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> tuple[Feature, ...]:
    """The features, those of the history all in one sequence: the model adds them element by element."""
    history = history_name(model)
    parts = (history, *(f"{history}_{part}" for part in ("action", "watchtime", "timestamp")))
    members = {group.name: group.features for group in groups if group.name in parts}
    by_name = {feature.name: feature for feature in features}
    leader = next((by_name[name].sequence for name in members.get(history, ())), None)
    if leader is None:
        return tuple(features)
    shared = {name for names in members.values() for name in names}
    return tuple(
        replace(feature, sequence=replace(feature.sequence, name=leader.name))
        if feature.name in shared and feature.sequence
        else feature
        for feature in features
    )


def _check_contextual(model: HstuMatchConfig, inputs: "_Inputs") -> None:
    where = f"feature_groups: {CONTEXTUAL}"
    mlp = model.hstu.preprocessor.action_mlp
    if not inputs.has(CONTEXTUAL):
        if mlp is not None and mlp.parameterized:
            invalid(
                WHERE,
                "parameterized_mlp needs a group named contextual",
                hint="add the group it was trained with",
            )
        return
    if inputs.group(CONTEXTUAL).kind is GroupKind.JAGGED_SEQUENCE:
        invalid(
            where,
            "group_type is JAGGED_SEQUENCE",
            hint="use DEEP or SEQUENCE: one vector per row and feature",
        )
    if inputs.group(CONTEXTUAL).kind is GroupKind.SEQUENCE:
        _check_queries(inputs, where)
    widths = {feature.name: width_of(feature) for feature in inputs.members(CONTEXTUAL)}
    if len(set(widths.values())) > 1:
        shown = ", ".join(f"{name} {width}" for name, width in widths.items())
        invalid(where, f"its features differ in width: {shown}", hint="give all of them one embedding_dim")


def _check_queries(inputs: "_Inputs", where: str) -> None:
    for feature in inputs.members(CONTEXTUAL):
        if feature.is_sequence:
            invalid(
                where, f"{feature.name} is a sequence", hint="contextual features have one vector per row"
            )


def _check_widths(model: HstuMatchConfig, inputs: "_Inputs") -> None:
    """Without an output projection both towers must end in the same width."""
    user = model.hstu.stu.embedding_dim
    candidate = sum(width_of(feature) for feature in inputs.members(model.item_input))
    item = model.item_mlp.hidden_units[-1] if model.item_mlp else candidate
    if model.output_dim == 0 and user != item:
        invalid(
            WHERE,
            f"output_dim is 0, so the towers' own widths are compared, and they differ: user {user} "
            f"(stu.embedding_dim), item {item} "
            f"({'last of item_tower.mlp.hidden_units' if model.item_mlp else f'group {model.item_input}'})",
            hint="set output_dim, or make the two equal",
        )


def width_of(feature: Feature) -> int:
    """How many numbers the feature adds to its group's vector."""
    return feature.table.dim if feature.table else feature.value_dim


class _Inputs:
    """The config's groups by name, with the checks that several of them share."""

    def __init__(self, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
        self._features = {feature.name: feature for feature in features}
        self._groups = {group.name: group for group in groups}

    def has(self, name: str) -> bool:
        return name in self._groups

    def group(self, name: str) -> FeatureGroup:
        return self._groups[name]

    def members(self, name: str) -> list[Feature]:
        return [self._features[feature] for feature in self._groups[name].features]

    def require(self, name: str, purpose: str, kind: GroupKind) -> None:
        if not self.has(name):
            raise InvalidPipelineConfig(
                f"{WHERE} needs feature group {name}, for {purpose}, and there is none",
                hint=f"add the group, of group_type {kind}",
                where="model_config.feature_groups",
            )
        if self.group(name).kind is not kind:
            invalid(
                f"feature_groups: {name}",
                f"group_type is {self.group(name).kind}, but {purpose} needs {kind}",
                hint=f"use group_type {kind}",
            )

    def jagged(self, name: str, purpose: str) -> None:
        """The group holds one or more sequences, element by element."""
        self.require(name, purpose, GroupKind.JAGGED_SEQUENCE)
        for feature in self.members(name):
            if not feature.is_sequence:
                invalid(
                    f"feature_groups: {name}",
                    f"{feature.name} is one value per row, but {purpose} is a sequence",
                    hint="write the feature inside a sequence_feature",
                )

    def numbers(self, name: str, purpose: str, kind: GroupKind) -> None:
        """The group holds exactly one plain number per row or per element."""
        self.require(name, purpose, kind)
        members = self.members(name)
        fits = len(members) == 1 and not members[0].is_sparse and members[0].value_dim == 1
        if not fits or members[0].is_sequence != (kind is GroupKind.JAGGED_SEQUENCE):
            invalid(
                f"feature_groups: {name}",
                f"{purpose} needs one plain number per {'row' if kind is GroupKind.DEEP else 'event'}",
                hint="name exactly one raw_feature without boundaries, value_dim 1",
            )
