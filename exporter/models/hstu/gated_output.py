"""Last part of an STU layer: the attention's output is normed, gated by u and projected back.

N elements of all rows together, D width, H heads, V width of their values, E = H * V, W columns, of which
the first E are u before its SiLU.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.models.hstu.kernels.output import gated_output

NORM_EPS = 1e-6


class GatedOutput(nn.Module):
    """x + [u, a, u * norm(a)] @ W; the module has no weights, so that a kernel can replace it."""

    def __init__(self, *, norm_heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_heads = norm_heads  # heads that are normed one by one; 0: all E numbers are normed together
        self.dropout = dropout

    def forward(
        self,
        x_ND: Tensor,
        uvqk_NW: Tensor,
        attended_NE: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        output_weight: Tensor,
    ) -> Tensor:
        """Return the layer's output, (N, D); the norm's weights are (E,), or (H,) for single heads."""
        u_NE = F.silu(uvqk_NW[:, : attended_NE.shape[1]])
        gated_NE = u_NE * self._norm(attended_NE, norm_weight, norm_bias)
        y = F.dropout(torch.cat([u_NE, attended_NE, gated_NE], dim=1), self.dropout, self.training)
        return torch.addmm(x_ND, y, output_weight)

    def _norm(self, a_NE: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if not self.norm_heads:
            return F.layer_norm(a_NE, a_NE.shape[1:], weight, bias, NORM_EPS)
        # One group per head. F.group_norm asks whether the batch is one value, which no trace can know.
        a_NHV = a_NE.unflatten(1, (self.norm_heads, -1))
        normed_NHV = F.layer_norm(a_NHV, a_NHV.shape[2:], eps=NORM_EPS)
        return (normed_NHV * weight.unsqueeze(1) + bias.unsqueeze(1)).flatten(1)


class TritonGatedOutput(GatedOutput):
    """GatedOutput by Triton kernels, for serving: it has no dropout."""

    def forward(
        self,
        x_ND: Tensor,
        uvqk_NW: Tensor,
        attended_NE: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        output_weight: Tensor,
    ) -> Tensor:
        layer_ND: Tensor = gated_output(
            x_ND,
            uvqk_NW,
            attended_NE,
            norm_weight,
            norm_bias,
            output_weight,
            u_column=0,
            heads=self.norm_heads,
            eps=NORM_EPS,
            tf32=torch.backends.cuda.matmul.allow_tf32,  # as in torch's own products
        )
        return layer_ND
