"""Formula of a Wukong layer in numpy (arXiv:2403.02545), as TorchEasyRec has it.

B rows, N vectors, D width of each.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.wukong import WukongLayerConfig
from tests.exporter.models.random_configs import Draw

Array = NDArray[np.float64]


def draw_layer(draw: Draw) -> WukongLayerConfig:
    mlp = MlpConfig(hidden_units=draw.widths(), bias=draw.flag(), use_ln=draw.flag())
    return WukongLayerConfig(
        linear_vectors=draw.width(), product_vectors=draw.width(), compressed=draw.width(), mlp=mlp
    )


def apply_layer(x: Array, weights: Mapping[str, Array], name: str, config: WukongLayerConfig) -> Array:
    """Return the layer's output vectors; its weights begin with `name`."""
    rows, vectors, width = x.shape
    compressed = np.einsum("bnd,nk->bkd", x, weights[f"{name}fmb.weight"])
    products = np.einsum("bnd,bkd->bnk", x, compressed).reshape(rows, -1)
    hidden = _perceptrons(_layer_norm(products, weights, f"{name}fmb.norm"), weights, name, config.mlp)
    made = hidden @ weights[f"{name}fmb.feature_out_liner.weight"].T
    made += weights[f"{name}fmb.feature_out_liner.bias"]
    linear = np.einsum("bnd,nm->bmd", x, weights[f"{name}lcb.weight"])
    joined = np.concatenate([made.reshape(rows, -1, width), linear], axis=1)
    projection = f"{name}residual_projection.weight"
    assert (projection in weights) == (vectors != joined.shape[1])
    joined += np.einsum("bnd,nm->bmd", x, weights[projection]) if projection in weights else x
    return _layer_norm(joined, weights, f"{name}norm")


def _perceptrons(x: Array, weights: Mapping[str, Array], name: str, config: MlpConfig) -> Array:
    """Apply linear layers, each with a layer norm if there is one, and a ReLU."""
    for number in range(len(config.hidden_units)):
        layer = f"{name}fmb.mlp.mlp.{number}.perceptron"
        x = x @ weights[f"{layer}.0.weight"].T + weights.get(f"{layer}.0.bias", 0)
        x = np.maximum(_layer_norm(x, weights, f"{layer}.1") if config.use_ln else x, 0)
    return x


def _layer_norm(x: Array, weights: Mapping[str, Array], name: str) -> Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    normed: Array = (x - mean) / np.sqrt(variance + 1e-5)
    return normed * weights[f"{name}.weight"] + weights[f"{name}.bias"]
