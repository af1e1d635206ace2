"""dbmtl (arXiv:1902.09154): shared layers over one group, experts, and tasks that may read earlier tasks.

B rows, D width.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from exporter.config.families.multi_task.dbmtl import DbmtlConfig, RelatedTaskConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.mask_net import MaskNet
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.mmoe import Mmoe
from exporter.models.blocks.tasks import task_outputs
from exporter.models.ranking import RankingTower, make_builders


class Dbmtl(RankingTower):
    """The whole model; it is served in the training view."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, DbmtlConfig)
        self._config = config
        width = group_width(pipeline, config.input)
        self.mask_net = None if config.mask_net is None else MaskNet(width, config.mask_net)
        width = width if self.mask_net is None else self.mask_net.out_features
        self.bottom_mlp = None if config.bottom_mlp is None else Mlp(width, config.bottom_mlp)
        width = width if config.bottom_mlp is None else config.bottom_mlp.width
        self.mmoe = None if config.mmoe is None else Mmoe(width, config.mmoe, tasks=len(config.tasks))
        width = width if config.mmoe is None else config.mmoe.expert_mlp.width
        self._add_tasks(width)

    def _add_tasks(self, width: int) -> None:
        self.task_mlps, self.relation_mlps = nn.ModuleDict(), nn.ModuleDict()
        self.task_outputs = nn.ModuleList()
        widths: dict[str, int] = {}  # width of each task's hidden output, which later tasks may read
        for task in self._config.tasks:
            name, own = task.task.name, width
            if task.mlp is not None:
                self.task_mlps[name] = Mlp(width, task.mlp)
                own = task.mlp.width
            if task.relation_mlp is not None:
                related = own + sum(widths[other] for other in task.relations)
                self.relation_mlps[name] = Mlp(related, task.relation_mlp)
                own = task.relation_mlp.width
            widths[name] = own
            self.task_outputs.append(nn.Linear(own, task.task.num_class))

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        shared = groups[self._config.input]
        for layers in (self.mask_net, self.bottom_mlp):
            shared = shared if layers is None else layers(shared)
        tasks = self._config.tasks
        inputs = [shared] * len(tasks) if self.mmoe is None else self.mmoe(shared)
        hidden: dict[str, Tensor] = {}
        for task, task_input in zip(tasks, inputs, strict=True):
            hidden[task.task.name] = self._hidden_output(task, task_input, hidden)
        numbers = {
            name: output(task_hidden)
            for (name, task_hidden), output in zip(hidden.items(), self.task_outputs, strict=True)
        }
        return task_outputs((task.task for task in tasks), numbers)

    def _hidden_output(
        self, task: RelatedTaskConfig, task_input: Tensor, earlier: Mapping[str, Tensor]
    ) -> Tensor:
        """Return the hidden output of a task, from its input and the hidden outputs of earlier tasks."""
        name, own = task.task.name, task_input
        if task.mlp is not None:
            own = self.task_mlps[name](own)
        if task.relation_mlp is not None:
            own = self.relation_mlps[name](
                torch.cat([own, *(earlier[other] for other in task.relations)], dim=1)
            )
        return own


build_served, build_trained = make_builders(Dbmtl)
