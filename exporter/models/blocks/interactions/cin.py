"""Compressed interaction network (Lian et al. 2018, arXiv:1803.05170, section 3.1).

B rows, N features, D width of each, H vectors that a layer made, C = H·N products.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class CompressedInteractionNetwork(nn.Module):
    """Layers that weigh products of the last layer's vectors with the features: (B, N, D) to (B, ΣH).

    Equation 6 makes a layer's vectors, and each is summed over D (equation 7). As in TorchEasyRec, and
    unlike the paper, the weighted sums have a bias; no activation follows them.
    """

    def __init__(self, features: int, layers: Sequence[int]) -> None:
        super().__init__()
        self.cin_layers = nn.ModuleList(
            nn.Conv1d(before * features, after, kernel_size=1)
            for before, after in pairwise((features, *layers))
        )
        self.out_features = sum(layers)

    def forward(self, features_BND: Tensor) -> Tensor:
        vectors_BHD, sums = features_BND, []
        for layer in self.cin_layers:
            products_BHND = vectors_BHD.unsqueeze(2) * features_BND.unsqueeze(1)
            vectors_BHD = layer(products_BHND.flatten(1, 2))
            sums.append(vectors_BHD.sum(dim=2))
        return torch.cat(sums, dim=1)
