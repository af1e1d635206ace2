"""Compressed interaction network (Lian et al. 2018, arXiv:1803.05170, section 3.1).

B rows, N features, D width of each, H vectors that a layer made, C = H·N products.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CompressedInteractionNetwork(nn.Module):
    """Layers that weigh products of the last layer's vectors with the features: (B, N, D) to (B, ΣH).

    Equation 6 makes a layer's vectors, and each is summed over D (equation 7). As in TorchEasyRec, and
    unlike the paper, the weighted sums have a bias; no activation follows them.
    """

    def __init__(self, features: int, layers: Sequence[int]) -> None:
        super().__init__()
        self.cin_layers = nn.ModuleList(
            PointwiseConvolution(before * features, after, kernel_size=1)
            for before, after in pairwise((features, *layers))
        )
        self.out_features = sum(layers)

    def forward(self, features_BND: Tensor) -> Tensor:
        features_BDN = features_BND.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        vectors_BDH, sums = features_BDN, []
        for layer in self.cin_layers:
            products_BDC = (vectors_BDH.unsqueeze(3) * features_BDN.unsqueeze(2)).flatten(2)
            vectors_BDH = layer(products_BDC.transpose(1, 2)).transpose(1, 2)
            sums.append(vectors_BDH.sum(dim=1))
        return torch.cat(sums, dim=1)


class PointwiseConvolution(nn.Conv1d):
    """Convolution over single places, as a linear layer: (B, C, D) to (B, H, D).

    Which convolution torch takes depends on the number of rows, so that a compiled one is bound to few rows.
    """

    def forward(self, x_BCD: Tensor) -> Tensor:
        return F.linear(x_BCD.transpose(1, 2), self.weight.squeeze(2), self.bias).transpose(1, 2)
