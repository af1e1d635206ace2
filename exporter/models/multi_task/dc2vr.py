"""dc2vr: shared layers over one group, experts, and tasks from which the influence of earlier ones is taken.

B rows, D width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from exporter.config.blocks.related_tasks import RelatedTask
from exporter.config.families.multi_task.dc2vr import IntervenedTask
from exporter.models.blocks.multi_task.intervention import Intervention
from exporter.models.ranking import make_builders
from exporter.models.related_tasks import RelatedTasksTower


class Dc2vr(RelatedTasksTower):
    """The whole model; it is served in the training view."""

    relations = "intervention"

    def relation(self, task: RelatedTask, own: int, sources: int) -> tuple[nn.Module, int] | None:
        assert isinstance(task, IntervenedTask)
        rank = task.low_rank_dim
        return None if rank is None else (Intervention(own, sources, rank), own)

    def relate(self, relation: nn.Module, own: Tensor, sources: Sequence[Tensor]) -> Tensor:
        hidden_BD: Tensor = relation(own, torch.cat(list(sources), dim=1))
        return hidden_BD


build_served, build_trained = make_builders(Dc2vr)
