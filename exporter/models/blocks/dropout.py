"""How much is dropped while training; nothing is while serving."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Ratios, each with the default of TorchEasyRec's field in parentheses."""

    input: float = 0.2  # of the sequence before the first layer (hstu.input_dropout_ratio)
    output: float = 0.3  # of each STU layer's output (stu.output_dropout_ratio)
    contextual: float = 0.3  # of the context in a parameterized_mlp (contextual_dropout_ratio)
