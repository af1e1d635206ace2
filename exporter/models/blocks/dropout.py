"""Dropout ratios of training; a served tower drops nothing."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Dropout ratios, with the defaults of TorchEasyRec's fields, which are named in parentheses."""

    input: float = 0.2  # of the sequence before the first layer (hstu.input_dropout_ratio)
    output: float = 0.3  # of each STU layer's output (stu.output_dropout_ratio)
    contextual: float = 0.3  # of the context in a parameterized_mlp (contextual_dropout_ratio)
