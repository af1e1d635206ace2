"""ple (Tang et al., RecSys 2020): extraction networks over one group, and a tower for every task."""

from collections.abc import Mapping

from torch import Tensor, nn

from exporter.config.families.multi_task.ple import PleConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.multi_task.extraction import ExtractionNet
from exporter.models.blocks.multi_task.task_towers import TaskTowers
from exporter.models.ranking import RankingTower, make_builders


class Ple(RankingTower):
    """The whole model; it is served in the training view."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, PleConfig)
        self._config = config
        width = group_width(pipeline, config.input)
        self._extraction_nets = nn.ModuleList()
        for extraction in config.extractions:
            is_last = extraction is config.extractions[-1]
            self._extraction_nets.append(
                ExtractionNet(width, extraction, tasks=len(config.tasks), is_last=is_last)
            )
            width = extraction.width
        self._task_tower = TaskTowers(width, config.tasks)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        shared = groups[self._config.input]
        streams = [shared] * len(self._config.tasks)
        for extraction in self._extraction_nets:
            streams, shared = extraction(streams, shared)
        outputs: dict[str, Tensor] = self._task_tower(streams)
        return outputs


build_served, build_trained = make_builders(Ple)
