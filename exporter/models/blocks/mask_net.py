"""MaskNet (Wang et al. 2021, arXiv:2102.07619): features are multiplied by masks computed from them.

B rows, D width of the features, H width that a block works on.
"""

import torch
from torch import Tensor, nn

from exporter.config.blocks.mask_net import MaskBlockConfig, MaskNetConfig
from exporter.models.blocks.mlp import Mlp


class MaskNet(nn.Module):
    """Mask blocks in parallel or in series, and an MLP on top if there is one."""

    def __init__(self, in_features: int, config: MaskNetConfig) -> None:
        super().__init__()
        self._parallel = config.parallel
        hidden = config.block.hidden_dim
        later = in_features if config.parallel else hidden
        widths = [in_features, *(later for _ in range(config.blocks - 1))]
        self.ln_emb = nn.LayerNorm(in_features)
        self.mask_blocks = nn.ModuleList(MaskBlock(width, in_features, config.block) for width in widths)
        self.out_features = hidden * config.blocks if config.parallel else hidden
        self.top_mlp = None if config.top_mlp is None else Mlp(self.out_features, config.top_mlp)
        if config.top_mlp is not None:
            self.out_features = config.top_mlp.width

    def forward(self, features_BD: Tensor) -> Tensor:
        x = self.ln_emb(features_BD)
        if self._parallel:
            x = torch.cat([block(x, features_BD) for block in self.mask_blocks], dim=1)
        else:
            for block in self.mask_blocks:
                x = block(x, features_BD)
        return x if self.top_mlp is None else self.top_mlp(x)


class MaskBlock(nn.Module):
    """One block: its input times a mask computed from the features, through linear, layer norm and ReLU."""

    def __init__(self, in_features: int, mask_features: int, config: MaskBlockConfig) -> None:
        super().__init__()
        middle, hidden = config.middle(in_features), config.hidden_dim
        self.mask_generator = nn.Sequential(
            nn.Linear(mask_features, middle), nn.ReLU(), nn.Linear(middle, in_features)
        )
        self.ffn = nn.Sequential(nn.Linear(in_features, hidden), nn.LayerNorm(hidden), nn.ReLU())

    def forward(self, x_BH: Tensor, features_BD: Tensor) -> Tensor:
        y: Tensor = self.ffn(x_BH * self.mask_generator(features_BD))
        return y
