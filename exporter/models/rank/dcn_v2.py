"""dcn_v2 (arXiv:2008.13535): a low-rank cross network behind a backbone, and an MLP over the group itself."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from exporter.config.families.rank.dcn_v2 import DcnV2Config
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.interactions.cross import LowRankCrossNetwork
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.tasks import task_outputs
from exporter.models.ranking import RankingTower, make_builders


class DcnV2(RankingTower):
    """The whole model; it is served in the training view."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, DcnV2Config)
        self._config = config
        width = crossed = group_width(pipeline, config.input)
        self.backbone = self.deep = None
        if config.backbone is not None:
            self.backbone = Mlp(width, config.backbone)
            crossed = config.backbone.width
        self.cross = LowRankCrossNetwork(crossed, config.cross_layers, config.low_rank)
        both = crossed
        if config.deep is not None:
            self.deep = Mlp(width, config.deep)
            both += config.deep.width
        self.final = Mlp(both, config.final)
        self.output_mlp = nn.Linear(config.final.width, config.task.num_class, bias=False)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        features = groups[self._config.input]
        both = self.cross(features if self.backbone is None else self.backbone(features))
        if self.deep is not None:
            both = torch.cat([both, self.deep(features)], dim=1)
        numbers = self.output_mlp(self.final(both))
        return task_outputs((self._config.task,), {self._config.task.name: numbers})


build_served, build_trained = make_builders(DcnV2)
