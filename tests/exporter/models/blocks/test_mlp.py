"""Perceptrons under the peer's names."""

import pytest
import torch
from torch import nn

from exporter.config.blocks.mlp import MlpConfig
from exporter.errors import UnsupportedConfig
from exporter.models.blocks.mlp import Dice, Mlp, activation


def test_batch_norm_takes_the_place_of_the_bias() -> None:
    names = Mlp(4, MlpConfig(hidden_units=(3,), use_bn=True)).state_dict().keys()
    assert "mlp.0.perceptron.0.bias" not in names
    assert "mlp.0.perceptron.1.running_mean" in names


def test_layer_norm_comes_before_the_activation() -> None:
    layers = Mlp(4, MlpConfig(hidden_units=(3, 2), use_ln=True)).get_submodule("mlp.1.perceptron")
    assert [type(layer) for layer in layers.children()] == [nn.Linear, nn.LayerNorm, nn.ReLU]


def test_an_empty_activation_is_none() -> None:
    layers = Mlp(4, MlpConfig(hidden_units=(3,), activation="")).get_submodule("mlp.0.perceptron")
    assert [type(layer) for layer in layers.children()] == [nn.Linear]


def test_activation_arguments_are_read() -> None:
    assert activation("nn.LeakyReLU(negative_slope=0.5)", 3)(torch.tensor(-2.0)).item() == -1.0
    assert isinstance(activation("Dice", 3), Dice)


@pytest.mark.parametrize("text", ["nn.Linear", "os.system", "nn.ReLU(bogus=1)", "nn.ELU(alpha=open('x'))"])
def test_what_is_not_an_activation_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedConfig, match="is not known"):
        activation(text, 3)
