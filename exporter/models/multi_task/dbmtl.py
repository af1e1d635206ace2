"""dbmtl (arXiv:1902.09154): shared layers over one group, experts, and tasks that may read earlier tasks.

B rows, D width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from exporter.config.blocks.related_tasks import RelatedTask
from exporter.config.families.multi_task.dbmtl import RelatedTaskConfig
from exporter.models.blocks.mlp import Mlp
from exporter.models.ranking import make_builders
from exporter.models.related_tasks import RelatedTasksTower


class Dbmtl(RelatedTasksTower):
    """The whole model; it is served in the training view."""

    relations = "relation_mlps"

    def relation(self, task: RelatedTask, own: int, sources: int) -> tuple[nn.Module, int] | None:
        assert isinstance(task, RelatedTaskConfig)
        mlp = task.relation_mlp
        return None if mlp is None else (Mlp(own + sources, mlp), mlp.width)

    def relate(self, relation: nn.Module, own: Tensor, sources: Sequence[Tensor]) -> Tensor:
        hidden_BD: Tensor = relation(torch.cat([own, *sources], dim=1))
        return hidden_BD


build_served, build_trained = make_builders(Dbmtl)
