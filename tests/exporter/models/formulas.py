"""Formulas of layers that blocks are built of, written with arrays, for tests of random settings.

A state has a module's weights by name, in double precision.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from exporter.config.blocks.mlp import MlpConfig
from tests.exporter.models.random_configs import Draw

Array = NDArray[np.float64]
State = Mapping[str, Array]
EPS = 1e-5

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "": lambda x: x,
    "nn.ReLU": lambda x: np.maximum(x, 0),
    "nn.Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "nn.Tanh": np.tanh,
    "nn.SiLU": lambda x: x / (1 + np.exp(-x)),
    "nn.LeakyReLU(negative_slope=0.3)": lambda x: np.where(x < 0, 0.3 * x, x),
}


def state_of(module: nn.Module) -> State:
    return {name: weight.double().numpy() for name, weight in module.state_dict().items()}


def below(state: State, prefix: str) -> State:
    """Return the weights of a submodule, by their names inside it."""
    return {
        name.removeprefix(f"{prefix}."): weight
        for name, weight in state.items()
        if name.startswith(f"{prefix}.")
    }


def require_near(actual: Tensor, expected: Array) -> None:
    """Require a module's output to be the formula's, to the rounding of single precision."""
    torch.testing.assert_close(actual, torch.from_numpy(expected).float(), rtol=1e-5, atol=1e-5)


def linear(state: State, name: str, x: Array) -> Array:
    y: Array = x @ state[f"{name}.weight"].T
    return y + state[f"{name}.bias"] if f"{name}.bias" in state else y


def layer_norm(state: State, name: str, x: Array) -> Array:
    normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPS)
    y: Array = normed * state[f"{name}.weight"] + state[f"{name}.bias"]
    return y


def softmax(x: Array) -> Array:
    """Return the softmax over the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    shares: Array = powers / powers.sum(-1, keepdims=True)
    return shares


def draw_mlp(draw: Draw, *, width: int | None = None) -> MlpConfig:
    """Draw an MLP without a norm, which ends in `width` if that is given."""
    widths = draw.widths() if width is None else (*draw.widths()[:-1], width)
    return MlpConfig(hidden_units=widths, activation=draw.choice(list(ACTIVATIONS)), bias=draw.flag())


def mlp(state: State, name: str, config: MlpConfig, x: Array) -> Array:
    """Return the output of an MLP without a norm."""
    for layer in range(len(config.hidden_units)):
        x = ACTIVATIONS[config.activation](linear(state, f"{name}.mlp.{layer}.perceptron.0", x))
    return x


def optional_mlp(state: State, name: str, config: MlpConfig | None, x: Array) -> Array:
    return x if config is None else mlp(state, name, config, x)
