"""A served tower over one embedding group: inputs are checked, then looked up in the tower's tables."""

from collections.abc import Mapping

from torch import Tensor

from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.errors import InvalidSpec
from exporter.models.contract import check_inputs, list_demands
from exporter.models.embedding.embedding_group import EmbeddingGroup
from exporter.spec import TowerName
from exporter.towers.tower import ServedModule


class EmbeddedTower(ServedModule):
    """A tower over one embedding group; a family adds `compute`."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__()
        self._features = pipeline.features
        self.embedding_group = EmbeddingGroup(pipeline)

    def lookup(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.embedding_group.look_up(check_inputs(inputs, self._features, self.row_limits))

    def demands(self, inputs: Mapping[str, Tensor]) -> tuple[str, ...]:
        return list_demands(inputs, self._features, self.row_limits)


def require_model(config: TowerConfig) -> None:
    """Refuse a tower other than `model`, the only one of a ranking family.

    Raises:
        InvalidSpec: `config` is of another tower.
    """
    if config.name is not TowerName.MODEL:
        raise InvalidSpec(
            f"{config.pipeline.model.family} has no tower `{config.name}`",
            hint="export its only tower, `model`",
            where="towers",
        )
