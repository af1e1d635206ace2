"""pepnet (Chang et al., KDD 2023, arXiv:2302.01115): gates scale the embeddings and every task's layers."""

from collections.abc import Mapping

from torch import Tensor

from exporter.config.families.multi_task.pepnet import ALL, DOMAIN, UIA, PepnetConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.multi_task.personalisation import EPNet, PPNet
from exporter.models.blocks.multi_task.task_towers import TaskTowers
from exporter.models.ranking import RankingTower, make_builders


class Pepnet(RankingTower):
    """The whole model; it is served in the training view."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, PepnetConfig)
        self._config = config
        width = group_width(pipeline, ALL)
        self.epnet = self.ppnet = None
        if config.epnet is not None:
            hidden = config.epnet.hidden_unit or width
            self.epnet = EPNet(width, group_width(pipeline, DOMAIN), hidden, config.epnet.gamma)
        if config.ppnet is not None:
            prior = group_width(pipeline, UIA)
            self.ppnet = PPNet(width, prior, config.ppnet, tasks=len(config.tasks))
            width = config.ppnet.layers.width
        towers = [tower for of_task in config.task_towers for tower in of_task]
        self._task_tower = TaskTowers(width, towers)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        features = groups[ALL]
        if self.epnet is not None:
            features = self.epnet(features, groups[DOMAIN])
        of_task = self._config.task_towers
        inputs = [features] * len(of_task) if self.ppnet is None else self.ppnet(features, groups[UIA])
        outputs: dict[str, Tensor] = self._task_tower(
            [x for x, towers in zip(inputs, of_task, strict=True) for _ in towers]
        )
        return outputs


build_served, build_trained = make_builders(Pepnet)
