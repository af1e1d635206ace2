"""rocket_launching (arXiv:1708.04106): a light net, trained beside a booster and served without it."""

from collections.abc import Mapping

from torch import Tensor, nn

from exporter.config.families.rank.rocket_launching import RocketLaunchingConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.tasks import task_outputs
from exporter.models.ranking import RankingTower, make_builders


class RocketLaunching(RankingTower):
    """The whole model; it is served in the training view, which has the booster's weights and reads none."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, RocketLaunchingConfig)
        self._config = config
        width = group_width(pipeline, config.input)
        self.share_mlp = None if config.share_mlp is None else Mlp(width, config.share_mlp)
        width = width if config.share_mlp is None else config.share_mlp.width
        self.light_mlp = Mlp(width, config.light_mlp)
        self.light_linear = nn.Linear(config.light_mlp.width, config.task.num_class)
        self.booster_mlp = Mlp(width, config.booster_mlp)
        self.booster_linear = nn.Linear(config.booster_mlp.width, config.task.num_class)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        features = groups[self._config.input]
        shared = features if self.share_mlp is None else self.share_mlp(features)
        numbers = self.light_linear(self.light_mlp(shared))
        return task_outputs((self._config.task,), {self._config.task.name: numbers})


build_served, build_trained = make_builders(RocketLaunching)
