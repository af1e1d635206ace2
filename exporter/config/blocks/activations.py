"""Activations, read from the text of a config: "nn.ReLU", "nn.ELU(alpha=0.5)", "Dice". No torch."""

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.config.refusals import raise_unsupported

DICE = "Dice"
NO_ACTIVATION = ""

# Element-wise activation classes of torch.nn, and the arguments that each takes.
TORCH_ACTIVATIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(arguments.split())
    for name, arguments in {
        "CELU": "alpha inplace",
        "ELU": "alpha inplace",
        "GELU": "approximate",
        "Hardshrink": "lambd",
        "Hardsigmoid": "inplace",
        "Hardswish": "inplace",
        "Hardtanh": "min_val max_val inplace",
        "Identity": "",
        "LeakyReLU": "negative_slope inplace",
        "LogSigmoid": "",
        "Mish": "inplace",
        "PReLU": "num_parameters init",
        "ReLU": "inplace",
        "ReLU6": "inplace",
        "SELU": "inplace",
        "SiLU": "inplace",
        "Sigmoid": "",
        "Softplus": "beta threshold",
        "Softshrink": "lambd",
        "Softsign": "",
        "Tanh": "",
        "Tanhshrink": "",
    }.items()
}


@dataclass(frozen=True, kw_only=True)
class Activation:
    """An activation class and its keyword arguments."""

    name: str  # a key of TORCH_ACTIVATIONS, DICE or NO_ACTIVATION
    arguments: Mapping[str, float | int | bool | str]


def read_activation(text: str, where: str) -> Activation:
    """Read the activation that a config writes as `text`.

    Raises:
        UnsupportedConfig: an unknown name or argument, or an argument that is not a literal.
    """
    name, _, arguments = text.strip().rstrip(")").partition("(")
    name, known = name.strip(), {DICE: frozenset[str](), NO_ACTIVATION: frozenset[str]()}
    if "nn." in name:
        name, known = name.removeprefix("torch.").removeprefix("nn."), dict(TORCH_ACTIVATIONS)
    try:
        read = _keywords(arguments)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        read = None
    if read is None or name not in known or not read.keys() <= known[name] or not _has_valid_types(read):
        raise_unsupported(
            where,
            f"activation {text!r} is not known",
            hint=f"use {DICE} or one of nn.{', nn.'.join(TORCH_ACTIVATIONS)}, with arguments by name",
        )
    return Activation(name=name, arguments=read)


def _has_valid_types(arguments: Mapping[str, object]) -> bool:
    """Return whether every argument has the right type: a flag, a word, a count or a finite number."""
    numbers = {}
    for name, value in arguments.items():
        if name == "inplace":
            fits = isinstance(value, bool)
        elif name == "approximate":
            fits = value in ("none", "tanh")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            fits = False
        else:
            fits = math.isfinite(value) and (
                name != "num_parameters" or (isinstance(value, int) and value > 0)
            )
            numbers[name] = value
        if not fits:
            return False
    return numbers.get("min_val", -1) < numbers.get("max_val", 1)


def _keywords(arguments: str) -> dict[str, float | int | bool | str]:
    call = ast.parse(f"f({arguments})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(arguments)
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
