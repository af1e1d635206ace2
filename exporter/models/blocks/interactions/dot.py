"""Dot products of all pairs of features (Naumov et al. 2019, arXiv:1906.00091, section 2.5).

B rows, N features, D width of each, P pairs.
"""

import torch
from torch import Tensor, nn


class DotInteraction(nn.Module):
    """Dot product of each pair of features: (B, N, D) to (B, P), pairs in the order 01, 02, …, 12, 13, …"""

    def forward(self, features_BND: Tensor) -> Tensor:
        # bmm, because matmul asks whether a traced size is 1
        products_BNN = torch.bmm(features_BND, features_BND.transpose(1, 2))
        features = features_BND.shape[1]
        first_P, second_P = torch.triu_indices(features, features, 1, device=features_BND.device)
        return products_BNN[:, first_P, second_P]
