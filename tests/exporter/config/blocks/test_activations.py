"""Activations as configs write them."""

import inspect

import pytest
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
