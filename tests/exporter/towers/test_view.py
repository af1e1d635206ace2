"""Which towers a model has, and what each of them reads."""

from dataclasses import replace

import pytest

from exporter.config.render import render_pipeline_config
from exporter.config.schema import FeatureGroup, PipelineConfig
from exporter.errors import InvalidSpec
from exporter.spec import TowerName
from exporter.towers.view import published_tower, tower_configs, training_tower


def test_all_towers_are_exported_unless_some_are_named(pipeline: PipelineConfig) -> None:
    assert [tower.name for tower in tower_configs(pipeline, None)] == [TowerName.USER, TowerName.ITEM]
    assert [tower.name for tower in tower_configs(pipeline, (TowerName.ITEM,))] == [TowerName.ITEM]


def test_the_user_tower_reads_every_group_but_the_candidates_in_the_training_view(
    pipeline: PipelineConfig,
) -> None:
    [user] = tower_configs(pipeline, (TowerName.USER,))
    assert user.view == "training"
    assert "candidate" not in {group.name for group in user.pipeline.groups}
    assert len(user.pipeline.groups) == len(pipeline.groups) - 1


def test_the_item_tower_reads_the_candidates_only_in_the_scalar_view(pipeline: PipelineConfig) -> None:
    [item] = tower_configs(pipeline, (TowerName.ITEM,))
    assert item.view == "scalar"
    assert [group.name for group in item.pipeline.groups] == ["candidate"]
    assert [feature.name for feature in item.pipeline.features] == ["video_id"]


def test_a_towers_features_stand_in_the_order_of_its_groups(pipeline: PipelineConfig) -> None:
    [user] = tower_configs(pipeline, (TowerName.USER,))
    grouped = [name for group in user.pipeline.groups for name in group.features]
    assert [feature.name for feature in user.pipeline.features] == grouped


def test_text_and_model_stay_those_of_the_whole(pipeline: PipelineConfig) -> None:
    for tower in tower_configs(pipeline, None):
        assert tower.pipeline.text == pipeline.text
        assert tower.pipeline.model == pipeline.model


def test_a_ranking_model_is_one_tower_that_reads_everything(ranking_pipeline: PipelineConfig) -> None:
    [tower] = tower_configs(ranking_pipeline, None)
    assert (tower.name, tower.view) == (TowerName.MODEL, "training")
    assert tower.pipeline.groups == ranking_pipeline.groups
    with pytest.raises(InvalidSpec, match="dlrm_hstu has no tower user"):
        tower_configs(ranking_pipeline, (TowerName.USER,))


def test_an_item_tower_that_is_scalar_already_is_served_as_it_was_trained(
    match_pipeline: PipelineConfig,
) -> None:
    [item] = tower_configs(match_pipeline, (TowerName.ITEM,))
    assert item == training_tower(match_pipeline, TowerName.ITEM)
    assert item.view == "training"
    assert not any(feature.is_sequence or feature.view_of for feature in item.pipeline.features)


def test_the_towers_of_a_match_model_read_the_groups_that_they_name(match_pipeline: PipelineConfig) -> None:
    user, item = tower_configs(match_pipeline, None)
    named = {group.name for tower in (user, item) for group in tower.pipeline.groups}
    assert named == {group.name for group in match_pipeline.groups}
    assert not {g.name for g in user.pipeline.groups} & {g.name for g in item.pipeline.groups}
    with_stranger = replace(match_pipeline, groups=(*match_pipeline.groups, _unread(match_pipeline)))
    assert tower_configs(with_stranger, (TowerName.USER,))[0].pipeline.groups == user.pipeline.groups


def _unread(pipeline: PipelineConfig) -> FeatureGroup:
    return replace(pipeline.groups[0], name="read_by_no_tower")


def test_a_match_tower_is_published_in_the_view_it_was_packaged_in(match_pipeline: PipelineConfig) -> None:
    for tower in tower_configs(match_pipeline, None):
        published = published_tower(render_pipeline_config(tower), tower.name)
        assert (published.view, published.pipeline.groups) == (tower.view, tower.pipeline.groups)
        assert published.pipeline.features == tower.pipeline.features


def test_a_tower_that_the_family_lacks_is_refused_with_those_it_has(pipeline: PipelineConfig) -> None:
    with pytest.raises(InvalidSpec, match="hstu_match has no tower model") as raised:
        tower_configs(pipeline, (TowerName.MODEL,))
    assert "user and item" in raised.value.hint
