"""The MLP message to its dataclass, refusing what contradicts itself."""

from exporter.config.blocks.activations import read_activation
from exporter.config.blocks.mlp import MlpConfig
from exporter.config.pb.module_pb2 import MLP
from exporter.config.refusals import invalid


def read_mlp(message: MLP, where: str) -> MlpConfig:
    if not message.hidden_units or 0 in message.hidden_units:
        invalid(
            where,
            "hidden_units are empty or hold a 0",
            hint="list the width of every layer, or leave the mlp out",
        )
    if message.use_bn and message.use_ln:
        invalid(where, "use_bn and use_ln are both set", hint="set one of the two")
    _check_activation(message, where)
    return MlpConfig(
        hidden_units=tuple(message.hidden_units),
        activation=message.activation.strip(),
        use_bn=message.use_bn,
        use_ln=message.use_ln,
        bias=message.bias,
    )


def _check_activation(message: MLP, where: str) -> None:
    """It is known, and goes with the layers' widths."""
    slopes = read_activation(message.activation, where).arguments.get("num_parameters", 1)
    if slopes != 1 and {slopes} != set(message.hidden_units):
        invalid(
            where,
            f"activation {message.activation!r} is for layers of width {slopes}",
            hint="write num_parameters only where every one of hidden_units is as many, or leave it out",
        )
