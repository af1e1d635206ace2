"""Multi-layer perceptron (MLP): its settings, and the reader of its message."""

from dataclasses import dataclass

from exporter.config.blocks.activations import read_activation
from exporter.config.pb.module_pb2 import MLP
from exporter.config.refusals import raise_invalid


@dataclass(frozen=True, kw_only=True)
class MlpConfig:
    """A multi-layer perceptron: linear layers, each with an optional norm and an activation behind it."""

    hidden_units: tuple[int, ...]  # output width of every layer
    activation: str = "nn.ReLU"  # also behind the last layer; "" means no activation
    use_bn: bool = False
    use_ln: bool = False
    bias: bool = True

    @property
    def width(self) -> int:
        """Width of the output, in values per row."""
        return self.hidden_units[-1]


def read_mlp(message: MLP, where: str) -> MlpConfig:
    """Read an MLP message; `where` is its place in the config, for errors.

    Raises:
        InvalidPipelineConfig: no layers, a layer of width 0, or two norms at once.
        UnsupportedConfig: the activation is unknown.
    """
    if not message.hidden_units or 0 in message.hidden_units:
        raise_invalid(
            where,
            "hidden_units are empty or hold a 0",
            hint="list the width of every layer, or leave the mlp out",
        )
    if message.use_bn and message.use_ln:
        raise_invalid(where, "use_bn and use_ln are both set", hint="set one of the two")
    _check_activation(message, where)
    return MlpConfig(
        hidden_units=tuple(message.hidden_units),
        activation=message.activation.strip(),
        use_bn=message.use_bn,
        use_ln=message.use_ln,
        bias=message.bias,
    )


def read_optional_mlp(message: MLP, where: str, *, is_set: bool) -> MlpConfig | None:
    """Read an MLP message, or return None where the config leaves the field out."""
    return read_mlp(message, where) if is_set else None


def _check_activation(message: MLP, where: str) -> None:
    """Refuse an unknown activation, and one whose number of slopes differs from a layer's width."""
    slopes = read_activation(message.activation, where).arguments.get("num_parameters", 1)
    if slopes != 1 and {slopes} != set(message.hidden_units):
        raise_invalid(
            where,
            f"activation {message.activation!r} is for layers of width {slopes}",
            hint="set num_parameters only where it equals every one of hidden_units, or leave it out",
        )
