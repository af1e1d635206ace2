"""dcn_v1 (arXiv:1708.05123): a cross network and an MLP over one group, and an MLP over both outputs."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from exporter.config.families.rank.dcn_v1 import DcnV1Config
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.interactions.cross import CrossNetwork
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.tasks import task_outputs
from exporter.models.ranking import RankingTower, make_builders


class DcnV1(RankingTower):
    """The whole model; it is served in the training view."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, DcnV1Config)
        self._config = config
        width = group_width(pipeline, config.input)
        self.cross = CrossNetwork(width, config.cross_layers)
        self.deep = Mlp(width, config.deep)
        self.final_dnn = Mlp(width + config.deep.width, config.final)
        self.output_linear = nn.Linear(config.final.width, config.task.num_class, bias=False)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        features = groups[self._config.input]
        both = torch.cat([self.cross(features), self.deep(features)], dim=1)
        numbers = self.output_linear(self.final_dnn(both))
        return task_outputs((self._config.task,), {self._config.task.name: numbers})


build_served, build_trained = make_builders(DcnV1)
