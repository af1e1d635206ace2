"""Interactions of features, against their papers' formulas written out in numpy, number by number."""

from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from exporter.models.blocks.interactions.cin import CompressedInteractionNetwork
from exporter.models.blocks.interactions.dot import DotInteraction
from exporter.models.blocks.interactions.fm import FactorizationMachine
from exporter.models.blocks.interactions.wukong import WukongLayer
from tests.exporter.models.blocks.interactions.plain_wukong import apply_layer, draw_layer
from tests.exporter.models.random_configs import Draw, over_random_configs

Array = NDArray[np.float64]


def run(module: nn.Module, x: Array) -> Array:
    """Return what the module makes of `x` in double precision."""
    with torch.no_grad():
        made: Array = module.double()(torch.from_numpy(x)).numpy()
    return made


def weights_of(module: nn.Module) -> dict[str, Array]:
    return {name: weight.double().numpy() for name, weight in module.state_dict().items()}


def draw_vectors(draw: Draw) -> Array:
    """Draw vectors of some rows: (B, N, D)."""
    return np.random.default_rng(draw.getrandbits(32)).normal(
        size=(draw.width(4), draw.width(), draw.width())
    )


@over_random_configs
def test_a_factorization_machine_adds_the_products_of_all_pairs(draw: Draw) -> None:
    x = draw_vectors(draw)
    expected = np.zeros((x.shape[0], x.shape[2]))
    for i, j in combinations(range(x.shape[1]), 2):
        expected += x[:, i] * x[:, j]
    np.testing.assert_allclose(run(FactorizationMachine(), x), expected, atol=1e-9)


@over_random_configs
def test_dot_products_are_those_of_each_pair_row_by_row(draw: Draw) -> None:
    x = draw_vectors(draw)
    pairs = [(x[:, i] * x[:, j]).sum(1) for i, j in combinations(range(x.shape[1]), 2)]
    expected = np.stack(pairs, axis=1) if pairs else np.zeros((len(x), 0))
    np.testing.assert_allclose(run(DotInteraction(), x), expected, atol=1e-9)


@over_random_configs
def test_a_compressed_interaction_network_weighs_products_layer_by_layer(draw: Draw) -> None:
    x = draw_vectors(draw)
    network = CompressedInteractionNetwork(x.shape[1], sizes := draw.widths())
    weights = weights_of(draw.weights(network))
    before, sums = x, []
    for number, size in enumerate(sizes):
        weight, bias = (weights[f"cin_layers.{number}.{part}"] for part in ("weight", "bias"))
        made = np.zeros((len(x), size, x.shape[2])) + bias[:, None]
        for h in range(size):
            for i in range(before.shape[1]):
                for j in range(x.shape[1]):
                    made[:, h] += weight[h, i * x.shape[1] + j, 0] * before[:, i] * x[:, j]
        before = made
        sums.append(made.sum(2))
    np.testing.assert_allclose(run(network, x), np.concatenate(sums, axis=1), atol=1e-6)
    assert network.out_features == sum(sizes)


@over_random_configs
def test_a_wukong_layer_joins_products_and_sums_with_a_residual(draw: Draw) -> None:
    x, config = draw_vectors(draw), draw_layer(draw)
    layer = WukongLayer(x.shape[1], x.shape[2], config)
    expected = apply_layer(x, weights_of(draw.weights(layer)), "", config)
    np.testing.assert_allclose(run(layer, x), expected, atol=1e-6)
