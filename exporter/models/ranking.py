"""Tower of the ranking families without HSTU: one tower over all feature groups.

B rows, D width.
"""

from abc import abstractmethod
from collections.abc import Mapping

from torch import Tensor

from exporter.config.schema import PipelineConfig
from exporter.models.blocks.variational_dropout import GroupDropouts
from exporter.models.embedded_tower import EmbeddedTower


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
