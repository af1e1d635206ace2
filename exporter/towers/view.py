"""Towers of a model, each in the view in which it is served. No torch."""

from dataclasses import replace

from exporter.config.build_options import BuildOptions
from exporter.config.parse import parse_published_config
from exporter.config.schema import FeatureGroup, PipelineConfig
from exporter.config.schema import TowerConfig as TowerConfig  # builders of towers import it from here
from exporter.dtypes import Kernel, Precision
from exporter.errors import InvalidSpec
from exporter.spec import TowerName
from exporter.towers.scalar_view import scalar_view


def tower_configs(
    pipeline: PipelineConfig, wanted: tuple[TowerName, ...] | None, options: BuildOptions | None = None
) -> tuple[TowerConfig, ...]:
    """Return the wanted towers, or all of them, each in the view in which it is served.

    Raises:
        InvalidSpec: the model has no such tower.
        UnsupportedConfig: the item tower has no scalar view.
    """
    towers = pipeline.model.towers
    for name in wanted or ():
        if name not in towers:
            raise InvalidSpec(
                f"{pipeline.model.family} has no tower {name}",
                hint=f"its towers are {' and '.join(towers)}",
                where="towers",
            )
    return tuple(_serving_tower(pipeline, name, options) for name in wanted or towers)


def training_tower(
    pipeline: PipelineConfig, name: TowerName, options: BuildOptions | None = None
) -> TowerConfig:
    """Return a tower in the training view, with the groups that it reads; options default to the config's."""
    options = options or pipeline.default_options
    groups = tuple(group for group in pipeline.groups if pipeline.model.reads(name, group.name))
    if not pipeline.model.reads_sequences(name):
        groups = tuple(_without_sequences(group, pipeline) for group in groups)
    names = dict.fromkeys(feature for group in groups for feature in group.all_features)
    if not pipeline.model.attends(name):
        options = replace(options, kernel=Kernel.PYTORCH)
    if pipeline.model.computes_ids:
        options = replace(options, precision=Precision.FP32, tf32=False)
    return TowerConfig(
        name=name,
        view="training",
        pipeline=replace(
            pipeline,
            groups=groups,
            features=tuple(pipeline.feature(feature) for feature in names),
        ),
        options=options,
    )


def published_tower(text: str, name: TowerName, *, where: str = "config") -> TowerConfig:
    """Return a tower from its artifact's pipeline.config, which is already in the view of the package."""
    tower = training_tower(parse_published_config(text, where=where), name)
    return replace(tower, view="scalar") if _is_projected(tower) else tower


def _serving_tower(pipeline: PipelineConfig, name: TowerName, options: BuildOptions | None) -> TowerConfig:
    tower = training_tower(pipeline, name, options)
    return scalar_view(tower) if _is_projected(tower) else tower


def _without_sequences(group: FeatureGroup, pipeline: PipelineConfig) -> FeatureGroup:
    return replace(group, features=tuple(f for f in group.features if not pipeline.feature(f).is_sequence))


def _is_projected(tower: TowerConfig) -> bool:
    """Return whether training reads a jagged sequence of candidates where one item per row is served."""
    return tower.name is TowerName.ITEM and tower.pipeline.model.trains_on_candidate_sequences
