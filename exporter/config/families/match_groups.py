"""The feature groups that the match families need, and the widths that must agree."""

from collections.abc import Mapping, Sequence

from exporter.config.families.hstu_groups import GroupInputs
from exporter.config.families.match import DeepTowerConfig, MatchConfig, MindConfig, MindUserConfig
from exporter.config.features.widths import encoder_widths, features_width
from exporter.config.refusals import invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind


def check_match(model: MatchConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Every group that a tower reads is there, of the right kind, and both towers end in one width.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    inputs = GroupInputs(features, groups, f"model_config.{model.family}")
    _check_deep(model.item.inputs, "the item", inputs)
    if isinstance(model, MindConfig):
        _check_deep((model.user.input,), "the user", inputs)
        _check_history(model.user.history_input, inputs)
    else:
        _check_deep(model.user.inputs, "the user", inputs)
    _check_widths(model, features, groups)


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


def _check_widths(model: MatchConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Without a projection the towers' own widths are compared."""
    if model.output_dim:
        return
    by_name = {feature.name: feature for feature in features}
    widths = {g.name: features_width(g, by_name) + sum(encoder_widths(g, by_name)) for g in groups}
    user = _width(model.user, widths)
    item = _width(model.item, widths)
    if user != item:
        invalid(
            f"model_config.{model.family}",
            "output_dim is 0, so the towers' own widths are compared, and they differ: "
            f"user {user}, item {item}",
            hint="set output_dim above 0, or end both towers in the same width",
        )


def _width(tower: DeepTowerConfig | MindUserConfig, widths: Mapping[str, int]) -> int:
    mlp = tower.mlp if isinstance(tower, DeepTowerConfig) else tower.concat_mlp
    if mlp is not None:
        return mlp.hidden_units[-1]
    if isinstance(tower, DeepTowerConfig):
        return sum(widths[name] for name in tower.inputs)
    return tower.user_mlp.hidden_units[-1] + tower.capsules.high_dim
