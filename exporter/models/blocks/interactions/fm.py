"""Factorization machine (Rendle, ICDM 2010): products of all pairs of features.

B rows, N features, D width of each.
"""

from torch import Tensor, nn


class FactorizationMachine(nn.Module):
    """Sum over all pairs of features of their products, number by number: (B, N, D) to (B, D).

    It is the paper's lemma 3.1 before its sum over D: half of (Σ v)² - Σ v². The model's first-order part is
    not in here.
    """

    def forward(self, features_BND: Tensor) -> Tensor:
        square_of_sum_BD = features_BND.sum(dim=1).square()
        return 0.5 * (square_of_sum_BD - features_BND.square().sum(dim=1))
