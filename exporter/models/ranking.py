"""Tower of the ranking families without HSTU: one tower over all feature groups.

B rows, D width.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping

from torch import Tensor

from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.models.blocks.dropout import Dropout
from exporter.models.blocks.variational_dropout import GroupDropouts
from exporter.models.embedded_tower import EmbeddedTower, require_model
from exporter.towers.tower import ServedModule


class RankingTower(EmbeddedTower):
    """The whole model, from input tensors to the outputs of every task, one per row."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        self.group_variational_dropouts = GroupDropouts(pipeline)

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.predict(self.group_variational_dropouts(self.embedding_group.encode(embedded)))

    @abstractmethod
    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs, by name, from the encoded groups."""


def make_builders(
    tower: Callable[[PipelineConfig], ServedModule],
) -> tuple[Callable[[TowerConfig], ServedModule], Callable[[PipelineConfig, Dropout], ServedModule]]:
    """Return `build_served` and `build_trained` of a family whose only tower is served as it was trained.

    `build_served` raises InvalidSpec for any tower but `model`. Dropout is not built: serving has none.
    """

    def build_served(config: TowerConfig) -> ServedModule:
        require_model(config)
        return tower(config.pipeline)

    def build_trained(pipeline: PipelineConfig, _dropout: Dropout) -> ServedModule:
        return tower(pipeline)

    return build_served, build_trained
