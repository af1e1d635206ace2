"""Tower over vectors of one width: one of all dense features together, one of each sparse feature.

B rows, N vectors, D width of each.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from exporter.config.blocks.dense_and_sparse import DENSE, DenseAndSparse
from exporter.config.features.widths import feature_widths, group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.mlp import Mlp
from exporter.models.ranking import RankingTower


class DenseAndSparseTower(RankingTower):
    """A tower over `vectors` vectors of width `width`; a family adds `predict`."""

    def __init__(self, pipeline: PipelineConfig, inputs: DenseAndSparse) -> None:
        super().__init__(pipeline)
        self._sparse = inputs.sparse
        features = {feature.name: feature for feature in pipeline.features}
        widths = feature_widths(pipeline.group(inputs.sparse), features)
        self.vectors, self.width = len(widths), widths[0]
        self.dense_mlp: Mlp | None = None
        if inputs.dense_mlp is not None:
            self.dense_mlp = Mlp(group_width(pipeline, DENSE), inputs.dense_mlp)
            self.vectors += 1

    def join(self, groups: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the dense features' vector, if there is one, and those of the sparse features as one."""
        dense = [] if self.dense_mlp is None else [self.dense_mlp(groups[DENSE])]
        return [*dense, groups[self._sparse]]

    def stack(self, joined: Sequence[Tensor]) -> Tensor:
        """Return the vectors of what `join` returned: (B, N, D)."""
        return torch.cat(tuple(joined), dim=1).unflatten(1, (self.vectors, self.width))
