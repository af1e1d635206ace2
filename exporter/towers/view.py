"""Which towers a model has, and in which view each presents its inputs. No torch."""

from dataclasses import replace

from exporter.config.hstu import DlrmHstuConfig, HstuMatchConfig
from exporter.config.parse import parse_published_config
from exporter.config.schema import PipelineConfig
from exporter.config.schema import TowerConfig as TowerConfig  # builders of towers import it from here
from exporter.errors import InvalidSpec
from exporter.spec import TowerName
from exporter.towers.scalar_view import scalar_view

_TOWERS = {
    HstuMatchConfig: (TowerName.USER, TowerName.ITEM),
    DlrmHstuConfig: (TowerName.MODEL,),
}


def tower_configs(pipeline: PipelineConfig, wanted: tuple[TowerName, ...] | None) -> tuple[TowerConfig, ...]:
    """The wanted towers, or all of them, each in the view it is served in.

    Raises:
        InvalidSpec: the model has no such tower.
        UnsupportedConfig: a tower has no view to be served in.
    """
    towers = _TOWERS[type(pipeline.model)]
    for name in wanted or ():
        if name not in towers:
            raise InvalidSpec(
                f"{pipeline.model.family} has no tower {name}",
                hint=f"its towers are {' and '.join(towers)}",
                where="towers",
            )
    return tuple(_served(pipeline, name) for name in wanted or towers)


def training_tower(pipeline: PipelineConfig, name: TowerName) -> TowerConfig:
    """A tower as training sees it: the item tower reads the candidate group, the user tower all others.

    The tower `model` of a ranking model reads every group.
    """
    groups = pipeline.groups
    if isinstance(pipeline.model, HstuMatchConfig):
        item = pipeline.model.item_input
        groups = tuple(group for group in groups if (group.name == item) == (name is TowerName.ITEM))
    names = dict.fromkeys(feature for group in groups for feature in group.all_features)
    return TowerConfig(
        name=name,
        view="training",
        pipeline=replace(
            pipeline, groups=groups, features=tuple(pipeline.feature(feature) for feature in names)
        ),
    )


def published_tower(text: str, name: TowerName, *, where: str = "config") -> TowerConfig:
    """A tower as its artifact's pipeline.config describes it, already in the view it was packaged in."""
    tower = training_tower(parse_published_config(text, where=where), name)
    return replace(tower, view="scalar") if name is TowerName.ITEM else tower


def _served(pipeline: PipelineConfig, name: TowerName) -> TowerConfig:
    tower = training_tower(pipeline, name)
    return scalar_view(tower) if name is TowerName.ITEM else tower
