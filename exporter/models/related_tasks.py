"""Tower of models of related tasks: shared layers over one group, experts, and tasks that read earlier ones.

B rows, D width.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from exporter.config.blocks.related_tasks import RelatedTask, RelatedTasksConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.mask_net import MaskNet
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.mmoe import Mmoe
from exporter.models.blocks.tasks import task_outputs
from exporter.models.ranking import RankingTower


class RelatedTasksTower(RankingTower):
    """The whole model but for the relations of tasks, which `relation` builds and `relate` computes."""

    relations: str  # name of the relations' modules in the checkpoint

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, RelatedTasksConfig)
        self._config = config
        width = group_width(pipeline, config.input)
        self.mask_net = None if config.mask_net is None else MaskNet(width, config.mask_net)
        width = width if self.mask_net is None else self.mask_net.out_features
        self.bottom_mlp = None if config.bottom_mlp is None else Mlp(width, config.bottom_mlp)
        width = width if config.bottom_mlp is None else config.bottom_mlp.width
        self.mmoe = None if config.mmoe is None else Mmoe(width, config.mmoe, tasks=len(config.tasks))
        width = width if config.mmoe is None else config.mmoe.expert_mlp.width
        self._add_tasks(width)

    @abstractmethod
    def relation(self, task: RelatedTask, own: int, sources: int) -> tuple[nn.Module, int] | None:
        """Return the module by which a task reads earlier ones, and its width; None if it reads none.

        The task's own hidden output is `own` wide, and those of the tasks it reads `sources` together.
        """

    @abstractmethod
    def relate(self, relation: nn.Module, own: Tensor, sources: Sequence[Tensor]) -> Tensor:
        """Return a task's hidden output from its own one and those of the tasks it reads."""

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

    def _add_tasks(self, width: int) -> None:
        self.task_mlps, self.task_outputs = nn.ModuleDict(), nn.ModuleList()
        relations = nn.ModuleDict()
        widths: dict[str, int] = {}  # width of each task's hidden output, which later tasks may read
        for task in self._config.tasks:
            name, own = task.task.name, width
            if task.mlp is not None:
                self.task_mlps[name] = Mlp(width, task.mlp)
                own = task.mlp.width
            related = self.relation(task, own, sum(widths[other] for other in task.relations))
            if related is not None:
                relations[name], own = related
            widths[name] = own
            self.task_outputs.append(nn.Linear(own, task.task.num_class))
        self.add_module(self.relations, relations)

    def _hidden_output(self, task: RelatedTask, task_input: Tensor, earlier: Mapping[str, Tensor]) -> Tensor:
        """Return the hidden output of a task, from its input and the hidden outputs of earlier tasks."""
        name = task.task.name
        own = self.task_mlps[name](task_input) if name in self.task_mlps else task_input
        relations = self.get_submodule(self.relations)
        assert isinstance(relations, nn.ModuleDict)
        if name not in relations:
            return own
        return self.relate(relations[name], own, [earlier[other] for other in task.relations])
