"""Intervention of earlier tasks in a later one's hidden output, in a space of low rank.

B rows, D width of the task's hidden output, S width of its sources', R rank.
"""

import torch
from torch import Tensor, nn


class Intervention(nn.Module):
    """The difference of a task's hidden output b and its sources' s in a common space, added to b.

    b' = (b R_b − s R_s) R_bᵀ + b, where R_b (D, R) and R_s (S, R) have orthonormal columns. Distributed
    interchange interventions (Wu et al. 2024, arXiv:2404.03592, section 3.1, equation 1) have this form with
    one rotation for both and the opposite sign.
    """

    def __init__(self, in_features: int, source_features: int, rank: int) -> None:
        super().__init__()
        self.base_rotate_layer = RotateLayer(in_features, rank)
        self.source_rotate_layer = RotateLayer(source_features, rank)

    def forward(self, x_BD: Tensor, source_BS: Tensor) -> Tensor:
        rotation_DR = self.base_rotate_layer.rotation()
        difference_BR = x_BD @ rotation_DR - self.source_rotate_layer(source_BS)
        return difference_BR @ rotation_DR.T + x_BD


class RotateLayer(nn.Module):
    """Product with a matrix of orthonormal columns, which the checkpoint holds as a parametrization."""

    def __init__(self, in_features: int, rank: int) -> None:
        super().__init__()
        self.parametrizations = nn.ModuleDict({"weight": Householder(in_features, rank)})

    def rotation(self) -> Tensor:
        rotation_DR: Tensor = self.parametrizations["weight"]()
        return rotation_DR

    def forward(self, x_BD: Tensor) -> Tensor:
        return x_BD @ self.rotation()


class Householder(nn.Module):
    """Matrix of orthonormal columns: a base times the first columns of a product of Householder reflections.

    torch.nn.utils.parametrizations.orthogonal with its map "householder" computes the same (see also Golub
    and Van Loan, Matrix Computations, 4th edition, section 5.1). A package computes it once, when it is
    loaded, because it depends on weights only.
    """

    def __init__(self, in_features: int, rank: int) -> None:
        super().__init__()
        # The strict lower triangle holds the reflections' vectors, and the diagonal the columns' signs.
        self.original = nn.Parameter(-torch.eye(in_features, rank))
        self.add_module("0", _Base(in_features))

    def forward(self) -> Tensor:
        vectors_DR = self.original.tril(diagonal=-1)
        scales_R = 2 / (1 + vectors_DR.square().sum(dim=0))
        reflected_DR = torch.linalg.householder_product(vectors_DR, scales_R)
        signs_R = self.original.diagonal().trunc()
        return self.get_buffer("0.base") @ (reflected_DR * signs_R)


class _Base(nn.Module):
    """Square orthogonal matrix that training started from."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("base", nn.init.orthogonal_(torch.empty(width, width)))
