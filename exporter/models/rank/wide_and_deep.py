"""wide_and_deep (Cheng et al. 2016, arXiv:1606.07792): one number per feature value beside a deep MLP.

B rows.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from exporter.config.families.rank.wide_and_deep import DEEP, WIDE, WideAndDeepConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.tasks import task_outputs
from exporter.models.ranking import RankingTower, make_builders


class WideAndDeep(RankingTower):
    """Wide parts beside a deep MLP: added up, as in the paper's equation 3, or through an MLP over all parts.

    In TorchEasyRec the wide weight of a feature's value is the sum of a table's row, and the MLP is an
    addition to the paper.
    """

    def __init__(self, pipeline: PipelineConfig, wide_width: int = 1) -> None:
        """Take the width of all wide parts together; a family with other parts overrides `wide_parts`."""
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, WideAndDeepConfig)
        self._task = config.task
        self.deep_mlp = Mlp(group_width(pipeline, DEEP), config.deep)
        joined = wide_width + config.deep.width
        self.final_mlp = None if config.final is None else Mlp(joined, config.final)
        self.output_mlp = nn.Linear((config.final or config.deep).width, config.task.num_class)

    def wide_parts(self, groups: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the parts beside the deep MLP, each with a second axis."""
        return [groups[WIDE].sum(dim=1, keepdim=True)]

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        wide, deep = self.wide_parts(groups), self.deep_mlp(groups[DEEP])
        if self.final_mlp is None:
            numbers = sum((part.sum(dim=1, keepdim=True) for part in wide), self.output_mlp(deep))
        else:
            numbers = self.output_mlp(self.final_mlp(torch.cat([*wide, deep], dim=1)))
        return task_outputs((self._task,), {self._task.name: numbers})


build_served, build_trained = make_builders(WideAndDeep)
