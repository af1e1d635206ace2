"""Cross networks: every layer multiplies the input by a linear function of the layer in front, and adds that.

B rows, D width.
"""

import torch
from torch import Tensor, nn


class CrossNetwork(nn.Module):
    """Cross network of Deep & Cross Network (Wang et al. 2017, arXiv:1708.05123, section 2.2, equation 3).

    x_{l+1} = x_0 (w_lᵀ x_l) + b_l + x_l
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.w = nn.ModuleList(nn.Linear(width, 1, bias=False) for _ in range(layers))
        self.b = nn.ParameterList(torch.zeros(width) for _ in range(layers))

    def forward(self, x_BD: Tensor) -> Tensor:
        y_BD = x_BD
        for weight, bias_D in zip(self.w, self.b, strict=True):
            y_BD = weight(y_BD) * x_BD + bias_D + y_BD
        return y_BD


class LowRankCrossNetwork(nn.Module):
    """Cross network of DCN-V2 with low-rank matrices (Wang et al. 2021, arXiv:2008.13535, section 3.5).

    x_{l+1} = x_0 ⊙ (V_l (U_l x_l) + b_l) + x_l, equation 2: U_l leads to the lower rank, and V_l back.
    """

    def __init__(self, width: int, layers: int, rank: int) -> None:
        super().__init__()
        self.u_kernels = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(layers))
        self.v_kernels = nn.ModuleList(nn.Linear(rank, width) for _ in range(layers))

    def forward(self, x_BD: Tensor) -> Tensor:
        y_BD = x_BD
        for down, up in zip(self.u_kernels, self.v_kernels, strict=True):
            y_BD = x_BD * up(down(y_BD)) + y_BD
        return y_BD
