"""How a tower presents its inputs: the training view, or the scalar view of an item tower. No torch."""

from dataclasses import dataclass
from typing import Literal

from exporter.config.schema import PipelineConfig
from exporter.spec import TowerName


@dataclass(frozen=True, kw_only=True)
class TowerConfig:
    """What a tower reads: the pipeline config as seen through the tower's view.

    `pipeline.features` and `pipeline.groups` are the tower's own, in that view; `pipeline.text` and
    `pipeline.model` stay those of the training view.
    """

    name: TowerName
    view: Literal["training", "scalar"]
    pipeline: PipelineConfig
