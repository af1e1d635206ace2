"""Multi-gate mixture of experts (Ma et al., KDD 2018): every task mixes the experts by a gate of its own.

B rows, E experts, D width.
"""

import torch
from torch import Tensor, nn

from exporter.config.blocks.mmoe import MmoeConfig
from exporter.models.blocks.mlp import Mlp


class Mmoe(nn.Module):
    """Module from one input to one vector per task, each `out_features` wide."""

    def __init__(self, in_features: int, config: MmoeConfig, *, tasks: int) -> None:
        super().__init__()
        self.expert_mlps = nn.ModuleList(
            Mlp(in_features, config.expert_mlp) for _ in range(config.num_expert)
        )
        gates = [] if config.gate_mlp is None else [Mlp(in_features, config.gate_mlp) for _ in range(tasks)]
        self.gate_mlps = nn.ModuleList(gates) if gates else None
        gate_width = in_features if config.gate_mlp is None else config.gate_mlp.width
        self.gate_finals = nn.ModuleList(nn.Linear(gate_width, config.num_expert) for _ in range(tasks))
        self.out_features = config.expert_mlp.width

    def forward(self, x_BD: Tensor) -> list[Tensor]:
        experts_BED = torch.stack([expert(x_BD) for expert in self.expert_mlps], dim=1)
        shares = [
            gate(x_BD if self.gate_mlps is None else self.gate_mlps[task](x_BD)).softmax(dim=1)
            for task, gate in enumerate(self.gate_finals)
        ]
        return [(share_BE.unsqueeze(2) * experts_BED).sum(dim=1) for share_BE in shares]
