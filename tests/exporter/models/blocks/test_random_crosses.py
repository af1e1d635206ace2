"""Cross networks of random sizes against their formulas, written row by row."""

import numpy as np
import torch

from exporter.models.blocks.interactions.cross import CrossNetwork, LowRankCrossNetwork
from tests.exporter.models.formulas import require_near, state_of
from tests.exporter.models.random_configs import Draw, over_random_configs


@over_random_configs
def test_a_cross_network_weighs_the_input_by_a_number_per_layer(draw: Draw) -> None:
    width, layers = draw.width(), draw.randint(0, 4)
    cross = draw.weights(CrossNetwork(width, layers))
    x = torch.randn(draw.width(5), width)
    state = state_of(cross)
    rows = []
    for x0 in x.double().numpy():
        row = x0
        for layer in range(layers):
            row = x0 * np.dot(state[f"w.{layer}.weight"][0], row) + state[f"b.{layer}"] + row
        rows.append(row)
    with torch.no_grad():
        require_near(cross(x), np.stack(rows))


@over_random_configs
def test_a_low_rank_cross_network_multiplies_the_input_by_a_vector_per_layer(draw: Draw) -> None:
    width, layers = draw.width(), draw.randint(0, 4)
    cross = draw.weights(LowRankCrossNetwork(width, layers, draw.width(4)))
    x = torch.randn(draw.width(5), width)
    state = state_of(cross)
    rows = []
    for x0 in x.double().numpy():
        row = x0
        for layer in range(layers):
            matrix = state[f"v_kernels.{layer}.weight"] @ state[f"u_kernels.{layer}.weight"]
            row = x0 * (matrix @ row + state[f"v_kernels.{layer}.bias"]) + row
        rows.append(row)
    with torch.no_grad():
        require_near(cross(x), np.stack(rows))
