"""The feature groups that the match families need, and the widths that must agree."""

from collections.abc import Sequence

from exporter.config.hstu_groups import GroupInputs
from exporter.config.refusals import invalid
from exporter.config.match import DeepTowerConfig, MatchConfig, MindConfig, MindUserConfig
from exporter.config.schema import Feature, FeatureGroup, GroupKind


def check_match(model: MatchConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Every group that a tower reads is there, of the right kind, and both towers end in one width.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    where = f"model_config.{model.family}"
    inputs = GroupInputs(features, groups, where)
    _check_deep(model.item.inputs, "the item", inputs)
    if isinstance(model, MindConfig):
        _check_deep((model.user.input,), "the user", inputs)
        _check_history(model.user.history_input, inputs)
    else:
        _check_deep(model.user.inputs, "the user", inputs)
    _check_widths(model, inputs, where)


def _check_deep(names: Sequence[str], purpose: str, inputs: GroupInputs) -> None:
    for name in names:
        inputs.require(name, purpose, GroupKind.DEEP)


def _check_history(name: str, inputs: GroupInputs) -> None:
    inputs.require(name, "the user's history", GroupKind.SEQUENCE)
    if not any(feature.is_sequence for feature in inputs.members(name)):
        invalid(
            f"feature_groups: {name}",
            "it is the user's history, and none of its features is a sequence",
            hint="name features of a sequence_feature",
        )


def _check_widths(model: MatchConfig, inputs: GroupInputs, where: str) -> None:
    """Without a projection the towers' own widths are compared."""
    if model.output_dim:
        return
    user = model.user
    own = _width(user, inputs) if isinstance(user, DeepTowerConfig) else _interest_width(user)
    item = _width(model.item, inputs)
    if own != item:
        invalid(
            where,
            "output_dim is 0, so the towers' own widths are compared, and they differ: "
            f"user {own}, item {item}",
            hint="set output_dim above 0, or end both towers in the same width",
        )


def _width(tower: DeepTowerConfig, inputs: GroupInputs) -> int:
    if tower.mlp is not None:
        return tower.mlp.hidden_units[-1]
    return sum(inputs.width(name) for name in tower.inputs)


def _interest_width(user: MindUserConfig) -> int:
    if user.concat_mlp is not None:
        return user.concat_mlp.hidden_units[-1]
    return user.user_mlp.hidden_units[-1] + user.capsules.high_dim
