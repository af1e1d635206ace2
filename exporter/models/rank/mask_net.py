"""mask_net (arXiv:2102.07619): a MaskNet over one group, and a linear layer."""

from collections.abc import Mapping

from torch import Tensor, nn

from exporter.config.families.rank.mask_net import MaskNetModelConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.mask_net import MaskNet
from exporter.models.blocks.tasks import task_outputs
from exporter.models.ranking import RankingTower, make_builders


class MaskNetModel(RankingTower):
    """The whole model; it is served in the training view."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, MaskNetModelConfig)
        self._config = config
        self.mask_net_layer = MaskNet(group_width(pipeline, config.input), config.mask_net)
        self.output_linear = nn.Linear(self.mask_net_layer.out_features, config.task.num_class, bias=False)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        numbers = self.output_linear(self.mask_net_layer(groups[self._config.input]))
        return task_outputs((self._config.task,), {self._config.task.name: numbers})


build_served, build_trained = make_builders(MaskNetModel)
