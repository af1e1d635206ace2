"""The item tower's export view: one row per item, where training reads a jagged sequence of candidates."""

from collections.abc import Mapping
from dataclasses import replace

from exporter.config.schema import Feature, FeatureGroup, TowerConfig
from exporter.errors import UnsupportedConfig


def scalar_view(tower: TowerConfig) -> TowerConfig:
    """Return the item tower with one value per row of every feature, under the feature's bare name.

    Defaults that a field has in a sequence, `default_value` "0" and `value_dim` 1, are written out; fields
    that the config sets stay. Tables keep their names, so that the same weights are read.

    Raises:
        UnsupportedConfig: a feature outside a sequence_feature, or two of one bare name.
    """
    features = tower.pipeline.features
    scalars = {feature.name: _scalar(feature) for feature in features}
    _check_distinct(scalars)
    return replace(
        tower,
        view="scalar",
        pipeline=replace(
            tower.pipeline,
            features=tuple(scalars[feature.name] for feature in features),
            groups=tuple(_rename_features(group, scalars) for group in tower.pipeline.groups),
        ),
    )


def _scalar(feature: Feature) -> Feature:
    if not feature.grouped:
        raise UnsupportedConfig(
            f"feature {feature.name} of the item tower is not in a sequence_feature, "
            "so it has no scalar view",
            hint="write the candidate's features inside one sequence_feature",
            where=f"feature_configs: {feature.name}",
        )
    return replace(feature, name=feature.bare_name, sequence=None, grouped=False, view_of=feature.name)


def _check_distinct(scalars: Mapping[str, Feature]) -> None:
    taken: dict[str, str] = {}
    for training_name, scalar in scalars.items():
        other = taken.setdefault(scalar.name, training_name)
        if other != training_name:
            raise UnsupportedConfig(
                f"{other} and {training_name} would both be {scalar.name} in the item tower's scalar view",
                hint="give one of them another feature_name",
                where=f"feature_configs: {training_name}",
            )


def _rename_features(group: FeatureGroup, scalars: Mapping[str, Feature]) -> FeatureGroup:
    return replace(group, features=tuple(scalars[name].name for name in group.features))
