"""PEPNet's gates of random settings against their formulas, written with arrays."""

import numpy as np
import torch

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.families.multi_task.pepnet import PpnetConfig
from exporter.models.blocks.multi_task.personalisation import EPNet, PPNet
from tests.exporter.models.formulas import (
    ACTIVATIONS,
    EPS,
    Array,
    State,
    linear,
    require_near,
    state_of,
)
from tests.exporter.models.random_configs import Draw, over_random_configs


@over_random_configs
def test_features_are_scaled_for_their_domain(draw: Draw) -> None:
    width, domain, gamma = draw.width(), draw.width(), draw.uniform(0.5, 4)
    net = draw.weights(EPNet(width, domain, draw.width(), gamma))
    rows = draw.width(5)
    x, of_domain = torch.randn(rows, width), torch.randn(rows, domain)
    features = x.double().numpy()
    factors = _gate(
        state_of(net), "gate_nu", gamma, np.concatenate([of_domain.double().numpy(), features], 1)
    )
    with torch.no_grad():
        require_near(net(x, of_domain), features * factors)


@over_random_configs
def test_layers_of_every_task_are_scaled_behind_their_activation(draw: Draw) -> None:
    activation = draw.choice([*list(ACTIVATIONS)[1:], "nn.PReLU", "Dice"])
    layers = MlpConfig(hidden_units=draw.widths(), activation=activation)
    config = PpnetConfig(gamma=draw.uniform(0.5, 4), layers=layers)
    width, prior, tasks = draw.width(), draw.width(), draw.randint(1, 3)
    net = draw.weights(PPNet(width, prior, config, tasks=tasks))
    rows = draw.width(5)
    x, of_user = torch.randn(rows, width), torch.randn(rows, prior)
    state, features = state_of(net), x.double().numpy()
    known = np.concatenate([of_user.double().numpy(), features], 1)
    with torch.no_grad():
        actual = net(x, of_user)
    assert len(actual) == tasks
    for task, output in enumerate(actual):
        expected = features
        for depth in range(len(layers.hidden_units)):
            number = task * len(layers.hidden_units) + depth
            expected = _activate(state, number, activation, linear(state, f"linears.{number}", expected))
            expected = expected * _gate(state, f"gate_nus.{number}", config.gamma, known)
        require_near(output, expected)


def _gate(state: State, name: str, gamma: float, x: Array) -> Array:
    hidden = np.maximum(linear(state, f"{name}.dense_layers.0", x), 0)
    return gamma / (1 + np.exp(-linear(state, f"{name}.dense_layers.2", hidden)))


def _activate(state: State, number: int, activation: str, x: Array) -> Array:
    name = f"activations.{number}"
    if activation == "nn.PReLU":
        return np.where(x < 0, state[f"{name}.weight"] * x, x)
    if activation == "Dice":
        normed = (x - state[f"{name}.bn.running_mean"]) / np.sqrt(state[f"{name}.bn.running_var"] + EPS)
        share = 1 / (1 + np.exp(-normed))
        return state[f"{name}.alpha"] * (1 - share) * x + share * x
    return ACTIVATIONS[activation](x)
