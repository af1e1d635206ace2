"""A stack of perceptrons as training described it; pure data."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MlpConfig:
    """A stack of perceptrons."""

    hidden_units: tuple[int, ...]
    activation: str = "nn.ReLU"  # "" is none
    use_bn: bool = False
    use_ln: bool = False
    bias: bool = True

    @property
    def width(self) -> int:
        """Of what comes out."""
        return self.hidden_units[-1]
