"""Activations as configs write them."""

import inspect

import pytest
import torch
from torch import nn

from exporter.config.blocks.activations import TORCH_ACTIVATIONS, Activation, read_activation
from exporter.errors import UnsupportedConfig


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nn.ReLU", Activation(name="ReLU", arguments={})),
        (
            " torch.nn.ELU(alpha=0.5, inplace=True) ",
            Activation(name="ELU", arguments={"alpha": 0.5, "inplace": True}),
        ),
        ("torch.nn.modules.activation.ReLU6", Activation(name="ReLU6", arguments={})),
        ("nn.Softmax(dim=-1)", Activation(name="Softmax", arguments={"dim": -1})),
        ("nn.Dropout(p=0.5)", Activation(name="Dropout", arguments={"p": 0.5})),
        ("nn.GELU(approximate='tanh')", Activation(name="GELU", arguments={"approximate": "tanh"})),
        ("Dice", Activation(name="Dice", arguments={})),
        ("", Activation(name="", arguments={})),
    ],
)
def test_a_name_and_its_arguments_are_read(text: str, expected: Activation) -> None:
    assert read_activation(text, "mlp") == expected


@pytest.mark.parametrize(
    "text",
    [
        *("ReLU", "nn.Linear", "nn.Dice", "nn.ELU(beta=1)", "nn.ELU(0.5)", "nn.ELU(alpha=open('x'))"),
        *("Dice(a=1)", "nn.ELU(alpha=None)", "nn.LeakyReLU(negative_slope=1j)", "nn.ELU(alpha=1e999)"),
        *("nn.GELU(approximate='foo')", "nn.PReLU(num_parameters=True)", "nn.PReLU(num_parameters=[8])"),
        *("nn.Softmax", "nn.Softmax(dim=0)", "nn.Softmax(dim=True)", "nn.Softmin(dim=2)", "nn.Dropout(p=2)"),
        *("nn.Threshold(value=1)", "nn.RReLU(lower=1, upper=0.5)", "nn.modules.dropout.Linear"),
        *("nn.Hardtanh(min_val=1, max_val=0)", f"nn.ELU(alpha={'-' * 9000}1)"),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_not_an_activation_is_refused_where_it_stands(text: str) -> None:
    with pytest.raises(UnsupportedConfig, match="is not known") as refusal:
        read_activation(text, "model_config.dbmtl.bottom_mlp")
    assert refusal.value.where == "model_config.dbmtl.bottom_mlp"


@pytest.mark.parametrize(("name", "arguments"), TORCH_ACTIVATIONS.items())
def test_torch_has_every_activation_with_its_arguments(name: str, arguments: frozenset[str]) -> None:
    assert arguments <= inspect.signature(getattr(nn, name)).parameters.keys()


@pytest.mark.parametrize("name", TORCH_ACTIVATIONS)
def test_every_activation_keeps_the_shape_and_is_the_same_again(name: str) -> None:
    arguments = {"Threshold": "(threshold=0.1, value=20)"} | dict.fromkeys(
        ("Softmax", "Softmin", "LogSoftmax"), "(dim=1)"
    )
    read = read_activation(f"nn.{name}{arguments.get(name, '')}", "mlp")
    module, x = getattr(nn, name)(**read.arguments).eval(), torch.linspace(-3, 3, 12).view(4, 3)
    assert module(x).shape == x.shape
    assert torch.equal(module(x), module(x))
