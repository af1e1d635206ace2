"""Which towers a model has, and in which view each presents its inputs. No torch."""

from dataclasses import replace

from exporter.config.declared import DeclaredConfig
from exporter.config.hstu import DlrmHstuConfig, HstuMatchConfig
from exporter.config.match import DssmConfig, MindConfig, groups_of
from exporter.config.parse import parse_published_config
from exporter.config.ranking import DbmtlConfig, MultiTowerDinConfig
from exporter.config.schema import ModelConfig, PipelineConfig
from exporter.config.schema import TowerConfig as TowerConfig  # builders of towers import it from here
from exporter.errors import InvalidSpec
from exporter.spec import TowerName
from exporter.towers.scalar_view import scalar_view

_TOWERS = {
    HstuMatchConfig: (TowerName.USER, TowerName.ITEM),
    DlrmHstuConfig: (TowerName.MODEL,),
    DssmConfig: (TowerName.USER, TowerName.ITEM),
    MindConfig: (TowerName.USER, TowerName.ITEM),
    MultiTowerDinConfig: (TowerName.MODEL,),
    DbmtlConfig: (TowerName.MODEL,),
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
    """A tower as training sees it, with the groups that it reads.

    The item tower of hstu_match reads the candidate group, and its user tower all others. The tower `model`
    of a ranking model reads every group that the model does.
    """
    groups = tuple(group for group in pipeline.groups if _reads(pipeline.model, name, group.name))
    names = dict.fromkeys(feature for group in groups for feature in group.all_features)
    return TowerConfig(
        name=name,
        view="training",
        pipeline=replace(
            pipeline, groups=groups, features=tuple(pipeline.feature(feature) for feature in names)
        ),
    )


def _reads(model: ModelConfig, name: TowerName, group: str) -> bool:
    match model:
        case HstuMatchConfig():
            return (group == model.item_input) == (name is TowerName.ITEM)
        case DlrmHstuConfig() | DeclaredConfig():
            return True
        case MultiTowerDinConfig() | DbmtlConfig():
            return group in model.inputs
        case DssmConfig() | MindConfig():
            return group in groups_of(model, name)


def published_tower(text: str, name: TowerName, *, where: str = "config") -> TowerConfig:
    """A tower as its artifact's pipeline.config describes it, already in the view it was packaged in."""
    tower = training_tower(parse_published_config(text, where=where), name)
    return replace(tower, view="scalar") if _is_projected(tower) else tower


def _served(pipeline: PipelineConfig, name: TowerName) -> TowerConfig:
    tower = training_tower(pipeline, name)
    return scalar_view(tower) if _is_projected(tower) else tower


def _is_projected(tower: TowerConfig) -> bool:
    """Whether training reads a jagged sequence of candidates, where one item is served per row."""
    return tower.name is TowerName.ITEM and isinstance(tower.pipeline.model, HstuMatchConfig)
