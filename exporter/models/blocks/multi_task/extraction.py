"""Extraction network of progressive layered extraction (PLE; Tang et al., RecSys 2020).

B rows, E experts, D width.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from exporter.config.families.multi_task.ple import ExtractionConfig
from exporter.models.blocks.mlp import Mlp


class ExtractionNet(nn.Module):
    """One extraction network: streams of all tasks and a shared stream to new ones of the same number.

    Sections 4.1 and 4.2, equations 1 to 3 and 5: every stream is a mixture of experts, whose shares are a
    softmax over a linear layer of the stream that was there before. A task mixes its own experts, then the
    shared ones; the shared stream mixes all. The last network has no shared stream.
    """

    def __init__(self, in_features: int, config: ExtractionConfig, *, tasks: int, is_last: bool) -> None:
        super().__init__()
        own, shared = config.task_experts, config.shared_experts
        self._shared_layers = nn.ModuleList(Mlp(in_features, config.shared_expert_mlp) for _ in range(shared))
        self._task_layers = nn.ModuleList(
            nn.ModuleList(Mlp(in_features, config.task_expert_mlp) for _ in range(own)) for _ in range(tasks)
        )
        self._task_gates = nn.ModuleList(nn.Linear(in_features, own + shared) for _ in range(tasks))
        self._shared_gate = None if is_last else nn.Linear(in_features, tasks * own + shared)

    def forward(self, tasks: Sequence[Tensor], shared_BD: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the streams of the tasks and the shared stream; the last network returns that as it was."""
        shared_experts = [expert(shared_BD) for expert in self._shared_layers]
        streams, all_experts = [], []
        for x_BD, layers, gate in zip(tasks, self._task_layers, self._task_gates, strict=True):
            assert isinstance(layers, nn.ModuleList)
            experts = [expert(x_BD) for expert in layers]
            streams.append(_mix(gate(x_BD), [*experts, *shared_experts]))
            all_experts += experts
        if self._shared_gate is not None:
            shared_BD = _mix(self._shared_gate(shared_BD), [*all_experts, *shared_experts])
        return streams, shared_BD


def _mix(numbers_BE: Tensor, experts: Iterable[Tensor]) -> Tensor:
    """Return the sum of experts (B, D), weighted by the softmax of each row's numbers."""
    experts_BED = torch.stack(list(experts), dim=1)
    return (numbers_BE.softmax(dim=1).unsqueeze(2) * experts_BED).sum(dim=1)
