"""What every served tower begins with: its inputs checked, and looked up in its tables."""

from collections.abc import Mapping

from torch import Tensor

from exporter.config.schema import PipelineConfig
from exporter.models.contract import checked, demands_of
from exporter.models.embedding.embedding_group import EmbeddingGroup
from exporter.towers.tower import ServedModule


class EmbeddedTower(ServedModule):
    """A tower over an embedding group of its own; a family adds `compute`."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__()
        self._features = pipeline.features
        self.embedding_group = EmbeddingGroup(pipeline)

    def lookup(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.embedding_group.look_up(checked(inputs, self._features))

    def demands(self, inputs: Mapping[str, Tensor]) -> tuple[str, ...]:
        return demands_of(inputs, self._features)
