"""mmoe (Ma et al., KDD 2018): experts over one group, mixed by a gate for every task's tower."""

from collections.abc import Mapping

from torch import Tensor

from exporter.config.families.multi_task.mmoe import MmoeModelConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.mmoe import Mmoe
from exporter.models.blocks.multi_task.task_towers import TaskTowers
from exporter.models.ranking import RankingTower, make_builders


class MmoeModel(RankingTower):
    """The whole model; it is served in the training view."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, MmoeModelConfig)
        self._input = config.input
        self.mmoe = Mmoe(group_width(pipeline, config.input), config.mmoe, tasks=len(config.tasks))
        self._task_tower = TaskTowers(self.mmoe.out_features, config.tasks)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        outputs: dict[str, Tensor] = self._task_tower(self.mmoe(groups[self._input]))
        return outputs


build_served, build_trained = make_builders(MmoeModel)
