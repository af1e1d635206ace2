"""The item tower's export view: one small test per rule."""

from copy import deepcopy
from dataclasses import replace

import pytest

from exporter.config.schema import (
    Feature,
    FeatureGroup,
    FeatureKind,
    GroupKind,
    PipelineConfig,
    Sequence,
    TableConfig,
    TowerConfig,
)
from exporter.errors import UnsupportedConfig
from exporter.spec import TowerName
from exporter.towers.scalar_view import scalar_view
from exporter.towers.view import training_tower

_TABLE = TableConfig(name="ids_emb", rows=9, dim=4)


def _grouped(name: str, *, parent: str = "cand_seq", **changes: object) -> Feature:
    feature = Feature(
        name=f"{parent}__{name}",
        bare_name=name,
        kind=FeatureKind.ID,
        sequence=Sequence(name=parent, length=16, delim="|"),
        grouped=True,
        table=_TABLE,
        default_value="0",
    )
    return replace(feature, **changes)  # type: ignore[arg-type]  # tests name fields of Feature


def _tower(pipeline: PipelineConfig, *features: Feature) -> TowerConfig:
    group = FeatureGroup(
        name="candidate", kind=GroupKind.JAGGED_SEQUENCE, features=tuple(feature.name for feature in features)
    )
    return TowerConfig(
        name=TowerName.ITEM, view="training", pipeline=replace(pipeline, features=features, groups=(group,))
    )


def test_a_grouped_feature_becomes_a_scalar_one_of_its_bare_name(pipeline: PipelineConfig) -> None:
    [feature] = scalar_view(_tower(pipeline, _grouped("video_id"))).pipeline.features
    assert feature.name == "video_id"
    assert feature.sequence is None
    assert not feature.grouped
    assert feature.view_of == "cand_seq__video_id"


def test_every_sub_feature_is_projected_in_order(pipeline: PipelineConfig) -> None:
    view = scalar_view(_tower(pipeline, _grouped("b"), _grouped("a")))
    assert [feature.name for feature in view.pipeline.features] == ["b", "a"]


def test_the_effective_defaults_of_sequence_mode_are_written(pipeline: PipelineConfig) -> None:
    [feature] = scalar_view(_tower(pipeline, _grouped("video_id"))).pipeline.features
    assert (feature.value_dim, feature.default_value) == (1, "0")


def test_a_default_value_that_the_config_sets_stays(pipeline: PipelineConfig) -> None:
    source = _grouped("video_id", default_value="7")
    assert scalar_view(_tower(pipeline, source)).pipeline.features[0].default_value == "7"


def test_a_value_dim_that_the_config_sets_stays(pipeline: PipelineConfig) -> None:
    source = _grouped("price", kind=FeatureKind.RAW, table=None, value_dim=3)
    assert scalar_view(_tower(pipeline, source)).pipeline.features[0].value_dim == 3


def test_a_sequence_feature_that_is_not_grouped_is_refused(pipeline: PipelineConfig) -> None:
    with pytest.raises(UnsupportedConfig, match="cand_seq__video_id .* is not in a sequence_feature"):
        scalar_view(_tower(pipeline, _grouped("video_id", grouped=False)))


def test_bare_names_that_collide_are_refused(pipeline: PipelineConfig) -> None:
    twins = (_grouped("video_id"), _grouped("video_id", parent="other_seq"))
    with pytest.raises(UnsupportedConfig, match="cand_seq__video_id and other_seq__video_id"):
        scalar_view(_tower(pipeline, *twins))


def test_the_group_names_the_scalar_features(pipeline: PipelineConfig) -> None:
    [group] = scalar_view(training_tower(pipeline, TowerName.ITEM)).pipeline.groups
    assert (group.name, group.features) == ("candidate", ("video_id",))


def test_the_same_table_is_read(pipeline: PipelineConfig) -> None:
    own_table = replace(_TABLE, name="cand_seq__video_id_emb")
    [feature] = scalar_view(_tower(pipeline, _grouped("video_id", table=own_table))).pipeline.features
    assert feature.table == own_table


def test_the_training_view_stays_untouched(pipeline: PipelineConfig) -> None:
    training = training_tower(pipeline, TowerName.ITEM)
    before = deepcopy(training)
    view = scalar_view(training)
    assert training == before
    assert (training.view, view.view) == ("training", "scalar")


def test_switching_back_restores_the_training_view(pipeline: PipelineConfig) -> None:
    training = training_tower(pipeline, TowerName.ITEM)
    scalar_view(training)
    assert training_tower(pipeline, TowerName.ITEM) == training
    assert training.pipeline.features[0].name == "cand_seq__video_id"
