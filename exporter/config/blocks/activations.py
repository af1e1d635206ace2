"""Activations, read from the text of a config: "nn.ReLU", "nn.ELU(alpha=0.5)", "Dice". No torch."""

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.config.refusals import raise_unsupported

DICE = "Dice"
NO_ACTIVATION = ""

# Classes of torch.nn whose output has their input's shape, and the arguments that each takes.
TORCH_ACTIVATIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(arguments.split())
    for name, arguments in {
        "AlphaDropout": "p inplace",
        "CELU": "alpha inplace",
        "Dropout": "p inplace",
        "ELU": "alpha inplace",
        "GELU": "approximate",
        "Hardshrink": "lambd",
        "Hardsigmoid": "inplace",
        "Hardswish": "inplace",
        "Hardtanh": "min_val max_val inplace",
        "Identity": "",
        "LeakyReLU": "negative_slope inplace",
        "LogSigmoid": "",
        "LogSoftmax": "dim",
        "Mish": "inplace",
        "PReLU": "num_parameters init",
        "RReLU": "lower upper inplace",
        "ReLU": "inplace",
        "ReLU6": "inplace",
        "SELU": "inplace",
        "SiLU": "inplace",
        "Sigmoid": "",
        "Softmax": "dim",
        "Softmin": "dim",
        "Softplus": "beta threshold",
        "Softshrink": "lambd",
        "Softsign": "",
        "Tanh": "",
        "Tanhshrink": "",
        "Threshold": "threshold value inplace",
    }.items()
}
_REQUIRED: Mapping[str, frozenset[str]] = {  # torch has no defaults, or guesses the axis
    "LogSoftmax": frozenset({"dim"}),
    "Softmax": frozenset({"dim"}),
    "Softmin": frozenset({"dim"}),
    "Threshold": frozenset({"threshold", "value"}),
}
_MODULE = re.compile(r"^(?:torch\.)?nn\.(?:modules\.(?:activation|dropout|linear)\.)?")


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
        name, known = _MODULE.sub("", name), dict(TORCH_ACTIVATIONS)
    try:
        read = _keywords(arguments)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        read = None
    if read is None or name not in known or not _has_valid_arguments(read, name, known[name]):
        raise_unsupported(
            where,
            f"activation {text!r} is not known",
            hint=f"use {DICE} or one of nn.{', nn.'.join(TORCH_ACTIVATIONS)}, with arguments by name",
        )
    return Activation(name=name, arguments=read)


def _has_valid_arguments(arguments: Mapping[str, object], name: str, known: frozenset[str]) -> bool:
    return _REQUIRED.get(name, frozenset()) <= arguments.keys() <= known and _has_valid_types(arguments)


def _has_valid_types(arguments: Mapping[str, object]) -> bool:
    """Return whether every argument has the right type: a flag, a word, a count or a finite number."""
    numbers = {}
    for name, value in arguments.items():
        if name == "inplace":
            fits = isinstance(value, bool)
        elif name == "approximate":
            fits = value in ("none", "tanh")
        elif name == "dim":  # along the rows of a batch, one row's answer would depend on the others'
            fits = value in (1, -1) and isinstance(value, int) and not isinstance(value, bool)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            fits = False
        else:
            fits = math.isfinite(value) and (
                name != "num_parameters" or (isinstance(value, int) and value > 0)
            )
            numbers[name] = value
        if not fits:
            return False
    ordered = (("min_val", -1, "max_val", 1), ("lower", 1 / 8, "upper", 1 / 3))  # with torch's defaults
    rising = all(numbers.get(low, least) <= numbers.get(high, most) for low, least, high, most in ordered)
    return (
        rising and numbers.get("min_val", -1) != numbers.get("max_val", 1) and 0 <= numbers.get("p", 0) <= 1
    )


def _keywords(arguments: str) -> dict[str, float | int | bool | str]:
    call = ast.parse(f"f({arguments})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(arguments)
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
