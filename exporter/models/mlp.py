"""A stack of perceptrons: linear, norm, activation."""

import ast
from collections.abc import Callable, Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from exporter.config.mlp import MlpConfig
from exporter.errors import UnsupportedConfig


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


_TORCH_ACTIVATIONS: Mapping[str, Callable[..., nn.Module]] = {
    f"{prefix}.{kind.__name__}": kind
    for prefix in ("nn", "torch.nn")
    for kind in (
        nn.CELU, nn.ELU, nn.GELU, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.Identity, nn.LeakyReLU,
        nn.LogSigmoid, nn.Mish, nn.PReLU, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus,
        nn.Softsign, nn.Tanh,
    )
}  # fmt: skip


def activation(text: str, width: int, *, padded: bool = False) -> nn.Module:
    """Build the activation that a config writes as "nn.ReLU", "nn.ELU(alpha=0.5)" or "Dice".

    Raises:
        UnsupportedConfig: an unknown name, or arguments that are not literals.
    """
    name, _, arguments = text.strip().rstrip(")").partition("(")
    if name == "Dice":
        return Dice(width, padded=padded)
    try:
        return _TORCH_ACTIVATIONS[name](**_keywords(arguments))
    except (KeyError, SyntaxError, TypeError, ValueError) as error:
        raise UnsupportedConfig(
            f"activation {text!r} is not known",
            hint=f"use Dice or one of {', '.join(name for name in _TORCH_ACTIVATIONS if name[0] == 'n')}",
            where="activation",
        ) from error


def _keywords(arguments: str) -> dict[str, float | int | bool]:
    call = ast.parse(f"f({arguments})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(arguments)
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
