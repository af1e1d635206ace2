"""Perceptrons of random settings against their formula, written with arrays."""

import numpy as np
import torch

from exporter.config.blocks.mlp import MlpConfig
from exporter.models.blocks.mlp import Mlp
from tests.exporter.models.formulas import ACTIVATIONS, EPS, Array, State, require_near, state_of
from tests.exporter.models.random_configs import Draw, over_random_configs


@over_random_configs
def test_an_mlp_is_linear_then_norm_then_activation_layer_by_layer(draw: Draw) -> None:
    norm, padded = draw.choice(["use_bn", "use_ln", ""]), draw.flag()
    config = MlpConfig(
        hidden_units=draw.widths(),
        activation=draw.choice([*ACTIVATIONS, "Dice"]),
        use_bn=norm == "use_bn",
        use_ln=norm == "use_ln",
        bias=draw.flag(),
    )
    mlp = draw.weights(Mlp(width := draw.width(), config, padded=padded))
    shape = (draw.width(5), draw.width(4), width) if padded else (draw.width(5), width)
    x = torch.randn(shape)
    with torch.no_grad():
        actual = mlp(x)
    require_near(actual, _expected(x.double().numpy(), state_of(mlp), config, padded=padded))


def _expected(x: Array, state: State, config: MlpConfig, *, padded: bool) -> Array:
    for layer in range(len(config.hidden_units)):

        def get(name: str, layer: int = layer) -> Array:
            return state[f"mlp.{layer}.perceptron.{name}"]

        x = x @ get("0.weight").T
        if config.bias and not config.use_bn:
            x = x + get("0.bias")
        place = 1
        if config.use_bn:
            place = 4 if padded else 2
            at = place - 2 if padded else place - 1
            x = (x - get(f"{at}.running_mean")) / np.sqrt(get(f"{at}.running_var") + EPS)
            x = x * get(f"{at}.weight") + get(f"{at}.bias")
        if config.use_ln:
            place = 2
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPS)
            x = x * get("1.weight") + get("1.bias")
        if config.activation == "Dice":
            normed = (x - get(f"{place}.bn.running_mean")) / np.sqrt(get(f"{place}.bn.running_var") + EPS)
            gate = ACTIVATIONS["nn.Sigmoid"](normed)
            x = get(f"{place}.alpha") * (1 - gate) * x + gate * x
        else:
            x = ACTIVATIONS[config.activation](x)
    return x
