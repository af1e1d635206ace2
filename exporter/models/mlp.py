"""A stack of perceptrons: linear, norm, activation."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from exporter.config.activations import DICE, read_activation
from exporter.config.mlp import MlpConfig


class Mlp(nn.Module):
    """Perceptrons one after another; `out_features` is the last one's width.

    Takes (B, D), or (B, L, D) where it is `padded`: then TorchEasyRec names the batch norms otherwise.
    """

    def __init__(self, in_features: int, config: MlpConfig, *, padded: bool = False) -> None:
        super().__init__()
        widths = (in_features, *config.hidden_units)
        self.mlp = nn.ModuleList(
            Perceptron(before, after, config, padded=padded) for before, after in pairwise(widths)
        )
        self.out_features = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.mlp:
            x = layer(x)
        return x


class Perceptron(nn.Module):
    """Linear, then batch norm or layer norm, then the activation."""

    def __init__(
        self, in_features: int, out_features: int, config: MlpConfig, *, padded: bool = False
    ) -> None:
        super().__init__()
        self.perceptron = nn.Sequential(
            nn.Linear(in_features, out_features, bias=config.bias and not config.use_bn)
        )
        if config.use_bn:
            norm = nn.BatchNorm1d(out_features)
            self.perceptron.extend([_Swap(), norm, _Swap()] if padded else [norm])
        if config.use_ln:
            self.perceptron.append(nn.LayerNorm(out_features))
        if config.activation.strip():
            self.perceptron.append(activation(config.activation, out_features, padded=padded))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.perceptron(x)
        return y


class _Swap(nn.Module):
    """(B, L, D) to (B, D, L) and back, since batch norm wants its channels second."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class Dice(nn.Module):
    """DIN's data-adaptive activation: between identity and `alpha` times, by the normalised input."""

    def __init__(self, width: int, *, padded: bool = False) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(width, affine=False)
        self.alpha = nn.Parameter(torch.zeros(width))
        self._padded = padded

    def forward(self, x: Tensor) -> Tensor:
        normalised = self.bn(x.transpose(1, 2)).transpose(1, 2) if self._padded else self.bn(x)
        gate = torch.sigmoid(normalised)
        return self.alpha * (1 - gate) * x + gate * x


def activation(text: str, width: int, *, padded: bool = False) -> nn.Module:
    """Build the activation that a config writes as "nn.ReLU", "nn.ELU(alpha=0.5)" or "Dice".

    Raises:
        UnsupportedConfig: an unknown name, or arguments that are not literals.
    """
    read = read_activation(text, "activation")
    if read.name == DICE:
        return Dice(width, padded=padded)
    module: nn.Module = getattr(nn, read.name)(**read.arguments)
    return module
