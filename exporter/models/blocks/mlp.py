"""Multi-layer perceptron and its activations, with TorchEasyRec's names of weights."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from exporter.config.blocks.activations import DICE, read_activation
from exporter.config.blocks.mlp import MlpConfig


class Mlp(nn.Module):
    """Perceptrons one after another; `out_features` is the width of the last.

    The input is (B, D), or (B, L, D) if `padded`, for which TorchEasyRec names batch norms differently.
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
    """One layer: linear, then batch norm or layer norm if set, then the activation."""

    def __init__(
        self, in_features: int, out_features: int, config: MlpConfig, *, padded: bool = False
    ) -> None:
        super().__init__()
        self.perceptron = nn.Sequential(
            nn.Linear(in_features, out_features, bias=config.bias and not config.use_bn)
        )
        if config.use_bn:
            # TorchEasyRec has a module before and after the norm of padded rows, and its names count them.
            norms = [nn.Identity(), PaddedBatchNorm(out_features), nn.Identity()]
            self.perceptron.extend(norms if padded else [nn.BatchNorm1d(out_features)])
        if config.use_ln:
            self.perceptron.append(nn.LayerNorm(out_features))
        if config.activation.strip():
            self.perceptron.append(activation(config.activation, out_features, padded=padded))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.perceptron(x)
        return y


class PaddedBatchNorm(nn.BatchNorm1d):
    """Batch norm of the last axis of (B, L, D), over rows and places.

    In serving it is written as a factor and a summand: torch's own takes its channels second, and its result
    for transposed rows has other strides than torch.export expects.
    """

    def forward(self, x_BLD: Tensor) -> Tensor:
        if self.training:
            return super().forward(x_BLD.transpose(1, 2)).transpose(1, 2)
        assert self.running_mean is not None and self.running_var is not None
        factor_D = torch.rsqrt(self.running_var + self.eps)
        if self.affine:
            factor_D = factor_D * self.weight
        y_BLD = (x_BLD - self.running_mean) * factor_D
        return y_BLD + self.bias if self.affine else y_BLD


class Dice(nn.Module):
    """DIN's data-adaptive activation: between identity and `alpha` times, by the normalised input."""

    def __init__(self, width: int, *, padded: bool = False) -> None:
        super().__init__()
        norm = PaddedBatchNorm if padded else nn.BatchNorm1d
        self.bn = norm(width, affine=False)
        self.alpha = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.bn(x))
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
