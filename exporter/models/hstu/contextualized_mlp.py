"""MLPs over events, either with fixed weights or with weights computed from the row's context.

B rows, N events, I and O widths in and out, X width of the context.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.models.blocks.jagged import Layout, pad, unpad


class SimpleMlp(nn.Module):
    """simple_mlp: an MLP with the same weights for every row."""

    def __init__(self, in_features: int, hidden: int, out_features: int) -> None:
        super().__init__()
        self._mlp = nn.Sequential(
            xavier_linear(in_features, hidden),
            SwishLayerNorm(hidden),
            xavier_linear(hidden, out_features),
            nn.LayerNorm(out_features),
        )

    def forward(self, x_NI: Tensor, layout: Layout, context_BX: Tensor | None) -> Tensor:
        y_NO: Tensor = self._mlp(x_NI)
        return y_NO


class ParameterizedMlp(nn.Module):
    """parameterized_mlp: a linear layer whose weights and bias are computed from each row's context."""

    def __init__(
        self, in_features: int, hidden: int, out_features: int, *, context: int, dropout: float
    ) -> None:
        super().__init__()
        self._weight_shape = (in_features, out_features)
        self._dropout = dropout
        self._dense_features_compress = xavier_linear(context, hidden)
        self._attn_raw_weights = nn.Sequential(xavier_linear(hidden, in_features * out_features))
        self._attn_weights_norm = nn.LayerNorm(self._weight_shape)
        self._res_weights = nn.Sequential(
            xavier_linear(hidden, hidden), SwishLayerNorm(hidden), xavier_linear(hidden, out_features)
        )

    def forward(self, x_NI: Tensor, layout: Layout, context_BX: Tensor | None) -> Tensor:
        assert context_BX is not None
        shared = self._dense_features_compress(F.dropout(context_BX, self._dropout, self.training))
        weight_BIO = self._attn_weights_norm(self._attn_raw_weights(shared).unflatten(1, self._weight_shape))
        bias_BO = self._res_weights(shared)
        return unpad(torch.bmm(pad(x_NI, layout), weight_BIO) + bias_BO.unsqueeze(1), layout)


class SwishLayerNorm(nn.LayerNorm):
    """Input times the sigmoid of its layer norm."""

    def __init__(self, width: int) -> None:
        super().__init__(width)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(super().forward(x))


def xavier_linear(in_features: int, out_features: int) -> nn.Linear:
    """Return a linear layer initialised with Xavier weights and a bias of zeros."""
    linear = nn.Linear(in_features, out_features)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
