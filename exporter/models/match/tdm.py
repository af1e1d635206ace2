"""tdm: scores of the nodes of a tree of items, and the vectors of items that the tree is built from.

B rows, D width.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from exporter.config.blocks.sequence_encoders import encoder_width
from exporter.config.families.match.tdm import TdmConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.models.blocks.dropout import Dropout
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.sequence_encoders import MultiWindowDinEncoder
from exporter.models.blocks.tasks import task_outputs
from exporter.models.embedded_tower import EmbeddedTower
from exporter.spec import TowerName
from exporter.towers.tower import ServedModule


class Tdm(EmbeddedTower):
    """The scores of a node: an MLP over the history by multi-window DIN and the other groups.

    A variational dropout is not part of this model, whatever the config says.
    """

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        self._config = config = _config(pipeline)
        history = config.history.group
        sequence_width = group_width(pipeline, f"{history}.sequence")
        query_width = group_width(pipeline, f"{history}.query")
        self.multiwindow_din = MultiWindowDinEncoder(
            config.history, query_width=query_width, sequence_width=sequence_width
        )
        widths = [group_width(pipeline, name) for name in config.deep_groups]
        widths.append(encoder_width(config.history, query_width=query_width, sequence_width=sequence_width))
        self.deep_mlp = Mlp(sum(widths), config.final)
        self.output_mlp = nn.Linear(config.final.width, config.task.num_class)

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        groups = self.embedding_group.encode(embedded)
        parts = [self.multiwindow_din(groups), *(groups[name] for name in self._config.deep_groups)]
        numbers = self.output_mlp(self.deep_mlp(torch.cat(parts, dim=1)))
        return task_outputs((self._config.task,), {self._config.task.name: numbers})


class TdmEmbedding(EmbeddedTower):
    """The vector of each item: its features as the history's query, (B, D)."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        self._query = f"{_config(pipeline).item_group}.query"

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"item_emb": embedded[self._query]}


def build_served(config: TowerConfig) -> ServedModule:
    """Return the served module of one tower."""
    return (TdmEmbedding if config.name is TowerName.EMBEDDING else Tdm)(config.pipeline)


def build_trained(pipeline: PipelineConfig, _dropout: Dropout) -> Tdm:
    """Return the model, to be trained; the items' vectors are rows of its tables."""
    return Tdm(pipeline)


def _config(pipeline: PipelineConfig) -> TdmConfig:
    assert isinstance(pipeline.model, TdmConfig)
    return pipeline.model
