"""multi_tower_din: an MLP per DEEP group, DIN attention per padded history, and one MLP over all of them.

B rows, D width.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from exporter.config.families.rank.multi_tower_din import MultiTowerDinConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.sequence_encoders import DinEncoder
from exporter.models.blocks.tasks import task_outputs
from exporter.models.ranking import RankingTower, make_builders


class MultiTowerDin(RankingTower):
    """The whole model; it is served in the training view."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, MultiTowerDinConfig)
        self._task = config.task
        self.towers = nn.ModuleDict(
            {tower.group: Mlp(group_width(pipeline, tower.group), tower.mlp) for tower in config.deep_towers}
        )
        widths = [group_width(pipeline, f"{tower.group}.sequence") for tower in config.din_towers]
        self.din_towers = nn.ModuleList(
            DinEncoder(
                tower.group,
                tower.mlp,
                query_width=group_width(pipeline, f"{tower.group}.query"),
                sequence_width=width,
            )
            for tower, width in zip(config.din_towers, widths, strict=True)
        )
        width = sum(tower.mlp.width for tower in config.deep_towers) + sum(widths)
        self.final_mlp = nn.Identity() if config.final is None else Mlp(width, config.final)
        width = width if config.final is None else config.final.width
        self.output_mlp = nn.Linear(width, config.task.num_class)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        parts = [tower(groups[group]) for group, tower in self.towers.items()]
        parts += [tower(groups) for tower in self.din_towers]
        numbers = self.output_mlp(self.final_mlp(torch.cat(parts, dim=1)))
        return task_outputs((self._task,), {self._task.name: numbers})


build_served, build_trained = make_builders(MultiTowerDin)
