"""Mask nets of random settings against their formula, written with arrays."""

import numpy as np
import torch

from exporter.config.blocks.mask_net import MaskBlockConfig, MaskNetConfig
from exporter.models.blocks.mask_net import MaskNet
from tests.exporter.models.formulas import (
    Array,
    State,
    draw_mlp,
    layer_norm,
    linear,
    optional_mlp,
    require_near,
    state_of,
)
from tests.exporter.models.random_configs import Draw, over_random_configs


@over_random_configs
def test_blocks_multiply_normed_features_by_masks_of_the_raw_ones(draw: Draw) -> None:
    block = MaskBlockConfig(
        hidden_dim=draw.width(),
        reduction_ratio=draw.randint(4, 12) / 4 if draw.flag() else 0.0,
        aggregation_dim=draw.width(),
    )
    config = MaskNetConfig(
        blocks=draw.randint(1, 3),
        block=block,
        top_mlp=draw_mlp(draw) if draw.flag() else None,
        parallel=draw.flag(),
    )
    width = draw.width()
    net = draw.weights(MaskNet(width, config))
    x = torch.randn(draw.width(5), width)
    with torch.no_grad():
        require_near(net(x), _expected(state_of(net), config, x.double().numpy()))


def _expected(state: State, config: MaskNetConfig, features: Array) -> Array:
    normed = layer_norm(state, "ln_emb", features)
    outputs: list[Array] = []
    for number in range(config.blocks):
        name = f"mask_blocks.{number}"
        read = normed if config.parallel or number == 0 else outputs[-1]
        middle = np.maximum(linear(state, f"{name}.mask_generator.0", features), 0)
        masked = read * linear(state, f"{name}.mask_generator.2", middle)
        outputs.append(
            np.maximum(layer_norm(state, f"{name}.ffn.1", linear(state, f"{name}.ffn.0", masked)), 0)
        )
    last = np.concatenate(outputs, axis=1) if config.parallel else outputs[-1]
    return optional_mlp(state, "top_mlp", config.top_mlp, last)
