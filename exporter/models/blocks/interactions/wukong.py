"""Wukong layer (Zhang et al. 2024, arXiv:2403.02545, sections 3.3 to 3.5).

B rows, N vectors of a layer's input, D width of each, K compressed vectors, M output vectors.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.blocks.wukong import WukongLayerConfig
from exporter.models.blocks.mlp import Mlp


class WukongLayer(nn.Module):
    """Layer norm of products and sums of the input's vectors, with a residual: (B, N, D) to (B, M, D).

    Where the numbers of vectors differ, the residual goes through sums of its own.
    """

    def __init__(self, vectors: int, width: int, config: WukongLayerConfig) -> None:
        super().__init__()
        self.lcb = LinearCompression(vectors, config.linear_vectors)
        self.fmb = FactorizationBlock(vectors, width, config)
        self.norm = nn.LayerNorm(width)
        self.residual_projection = (
            nn.Identity() if vectors == config.vectors else LinearCompression(vectors, config.vectors)
        )

    def forward(self, x_BND: Tensor) -> Tensor:
        made_BMD = torch.cat([self.fmb(x_BND), self.lcb(x_BND)], dim=1)
        y_BMD: Tensor = self.norm(made_BMD + self.residual_projection(x_BND))
        return y_BMD


class LinearCompression(nn.Module):
    """Weighted sums of the vectors: (B, N, D) to (B, M, D)."""

    def __init__(self, vectors: int, out_vectors: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vectors, out_vectors))
        nn.init.kaiming_uniform_(self.weight)

    def forward(self, x_BND: Tensor) -> Tensor:
        return _sums(x_BND, self.weight).transpose(1, 2)


class FactorizationBlock(nn.Module):
    """Vectors that an MLP makes of dot products of the input with sums of it: (B, N, D) to (B, M, D).

    As in TorchEasyRec, the weights of the sums are parameters, where the paper may compute them from the
    input, and a linear layer stands behind the MLP, whose last layer has an activation.
    """

    def __init__(self, vectors: int, width: int, config: WukongLayerConfig) -> None:
        super().__init__()
        products = vectors * config.compressed
        self._out_shape = config.product_vectors, width
        self.weight = nn.Parameter(torch.empty(vectors, config.compressed))
        nn.init.kaiming_uniform_(self.weight)
        self.norm = nn.LayerNorm(products)
        self.mlp = Mlp(products, config.mlp)
        self.feature_out_liner = nn.Linear(config.mlp.width, config.product_vectors * width)

    def forward(self, x_BND: Tensor) -> Tensor:
        # bmm, because matmul asks whether a traced size is 1
        products_BNK = torch.bmm(x_BND, _sums(x_BND, self.weight))
        y: Tensor = self.feature_out_liner(self.mlp(self.norm(products_BNK.flatten(1))))
        return y.unflatten(1, self._out_shape)


def _sums(x_BND: Tensor, weight_NK: Tensor) -> Tensor:
    """Return K weighted sums of the vectors, as columns: (B, D, K)."""
    return F.linear(x_BND.transpose(1, 2), weight_NK.t())
