"""Personalised networks of PEPNet (Chang et al., KDD 2023, arXiv:2302.01115), in which gates scale vectors.

B rows, D width.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from exporter.config.families.multi_task.pepnet import PpnetConfig
from exporter.models.blocks.mlp import activation


class GateUnit(nn.Module):
    """Gate NU (section "Gate Neural Unit"): factors γ · sigmoid(W' relu(W x + b) + b')."""

    def __init__(self, in_features: int, hidden: int, out_features: int, gamma: float) -> None:
        super().__init__()
        self._gamma = gamma
        self.dense_layers = nn.Sequential(
            nn.Linear(in_features, hidden), nn.ReLU(), nn.Linear(hidden, out_features), nn.Sigmoid()
        )

    def forward(self, x_BD: Tensor) -> Tensor:
        factors: Tensor = self._gamma * self.dense_layers(x_BD)
        return factors


class EPNet(nn.Module):
    """Embedding personalised network (section of that name): features scaled for their domain."""

    def __init__(self, in_features: int, domain_features: int, hidden: int, gamma: float) -> None:
        super().__init__()
        self.gate_nu = GateUnit(domain_features + in_features, hidden, in_features, gamma)

    def forward(self, x_BD: Tensor, domain_BD: Tensor) -> Tensor:
        scaled: Tensor = x_BD * self.gate_nu(torch.cat([domain_BD, x_BD], dim=1))
        return scaled


class PPNet(nn.Module):
    """Parameter personalised network (section of that name): an MLP per task, its layers scaled.

    The checkpoint numbers the layers of all tasks one after another.
    """

    def __init__(self, in_features: int, prior_features: int, config: PpnetConfig, *, tasks: int) -> None:
        super().__init__()
        widths = list(pairwise((in_features, *config.layers.hidden_units)))
        self._depth, self._tasks = len(widths), tasks
        every = widths * tasks
        self.linears = nn.ModuleList(nn.Linear(before, after) for before, after in every)
        self.activations = nn.ModuleList(activation(config.layers.activation, after) for _, after in every)
        self.gate_nus = nn.ModuleList(
            GateUnit(prior_features + in_features, after, after, config.gamma) for _, after in every
        )

    def forward(self, x_BD: Tensor, prior_BD: Tensor) -> list[Tensor]:
        """Return a vector for every task, from the features and what is known of user, item and author."""
        prior_BD = torch.cat([prior_BD, x_BD], dim=1)
        outputs = []
        for task in range(self._tasks):
            y_BD = x_BD
            for layer in range(task * self._depth, (task + 1) * self._depth):
                y_BD = self.activations[layer](self.linears[layer](y_BD)) * self.gate_nus[layer](prior_BD)
            outputs.append(y_BD)
        return outputs
