"""sid_rqkmeans: semantic ids by residual k-means of one group's vector.

B rows, D width.
"""

import torch
from torch import Tensor, nn

from exporter.checkpoint.errors import CodebooksNotFitted
from exporter.config.families.sid.sid_rqkmeans import SidRqkmeansConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.residual_quantizer import Centroids
from exporter.models.ranking import make_builders
from exporter.models.semantic_ids import SidTower


class SidRqkmeans(SidTower):
    """The whole model; k-means has fitted its centroids after training."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        config = pipeline.model
        assert isinstance(config, SidRqkmeansConfig)
        super().__init__(pipeline, Centroids, group_width(pipeline, config.input))
        self._dummy_param = nn.Parameter(torch.zeros(1))  # in the checkpoint; training needs a parameter

    def encode(self, group_BD: Tensor) -> Tensor:
        return group_BD

    def check_weights(self) -> None:
        unfitted = [
            f"_quantizer.layers.{place}._is_initialized"
            for place, codebook in enumerate(self._quantizer.codebooks)
            if isinstance(codebook, Centroids) and not codebook.is_fitted
        ]
        if unfitted:
            raise CodebooksNotFitted(unfitted)


build_served, build_trained = make_builders(SidRqkmeans)
