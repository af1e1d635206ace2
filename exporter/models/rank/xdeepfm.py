"""xdeepfm (Lian et al. 2018, arXiv:1803.05170): a compressed interaction network beside a deep MLP.

Unlike the paper's, TorchEasyRec's network reads tables of its own, an MLP joins the two parts, and there is
no linear part.

B rows, N features, D width of each.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from exporter.config.families.rank.wide_and_deep import DEEP, WIDE
from exporter.config.families.rank.xdeepfm import XDeepFmConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.interactions.cin import CompressedInteractionNetwork
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.tasks import task_outputs
from exporter.models.ranking import RankingTower, make_builders


class XDeepFm(RankingTower):
    """The whole model; it is served in the training view."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, XDeepFmConfig)
        self._task, self._wide_dim = config.task, config.wide_dim
        features = group_width(pipeline, WIDE) // config.wide_dim
        self.cin = CompressedInteractionNetwork(features, config.interaction_layers)
        self.deep = Mlp(group_width(pipeline, DEEP), config.deep)
        self.final = Mlp(self.cin.out_features + config.deep.width, config.final)
        self.output_mlp = nn.Linear(config.final.width, config.task.num_class)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        products = self.cin(groups[WIDE].unflatten(1, (-1, self._wide_dim)))
        joined = torch.cat([products, self.deep(groups[DEEP])], dim=1)
        numbers = self.output_mlp(self.final(joined))
        return task_outputs((self._task,), {self._task.name: numbers})


build_served, build_trained = make_builders(XDeepFm)
