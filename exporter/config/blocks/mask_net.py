"""MaskNet (Wang et al. 2021, arXiv:2102.07619): its settings, and the reader of its message."""

import math
from dataclasses import dataclass

from google.protobuf.json_format import MessageToDict

from exporter.config.blocks.mlp import MlpConfig, read_optional_mlp
from exporter.config.pb.module_pb2 import MaskBlock, MaskNetModule
from exporter.config.refusals import raise_invalid


@dataclass(frozen=True, kw_only=True)
class MaskBlockConfig:
    """One block of a MaskNet; exactly one of reduction_ratio and aggregation_dim is set."""

    hidden_dim: int
    reduction_ratio: float = 0.0  # width of the mask's middle layer as a part of the input's; 0: not set
    aggregation_dim: int = 0  # width of the mask's middle layer; 0: not set

    def middle(self, in_features: int) -> int:
        """Return the width between the two layers that make the mask."""
        return int(in_features * self.reduction_ratio) if self.reduction_ratio else self.aggregation_dim


@dataclass(frozen=True, kw_only=True)
class MaskNetConfig:
    """mask_net: blocks that multiply the features by masks computed from them, in parallel or in series."""

    blocks: int
    block: MaskBlockConfig
    top_mlp: MlpConfig | None = None
    parallel: bool = True


def read_mask_net(message: MaskNetModule, where: str) -> MaskNetConfig:
    """Read a MaskNet message; `where` is its place in the config, for errors.

    Raises:
        InvalidPipelineConfig: no blocks, or a block without widths.
        UnsupportedConfig: the activation of top_mlp is unknown.
    """
    if message.n_mask_blocks == 0:
        raise_invalid(where, "n_mask_blocks is 0", hint="set at least 1")
    return MaskNetConfig(
        blocks=message.n_mask_blocks,
        block=_read_mask_block(message.mask_block, f"{where}.mask_block"),
        top_mlp=read_optional_mlp(message.top_mlp, f"{where}.top_mlp", is_set=message.HasField("top_mlp")),
        parallel=message.use_parallel,
    )


def check_mask_net_width(config: MaskNetConfig, width: int, where: str) -> None:
    """Refuse a reduction_ratio that leaves the mask of an input of `width` values no middle layer."""
    later = config.block.hidden_dim if not config.parallel and config.blocks > 1 else width
    if config.block.middle(min(width, later)) == 0:
        raise_invalid(
            f"{where}.mask_block",
            f"reduction_ratio {config.block.reduction_ratio:g} of a width of {min(width, later)} is below 1",
            hint="raise reduction_ratio, or set it to 0 and aggregation_dim above 0",
        )


def _read_mask_block(message: MaskBlock, where: str) -> MaskBlockConfig:
    """Read one block; reduction_ratio wins where both widths are set, and is 1 where it is left out."""
    # Take the decimal number that is written: a width times its float32 may fall short of a whole number.
    written = MessageToDict(message, preserving_proto_field_name=True)
    ratio = float(written.get("reduction_ratio", message.reduction_ratio))
    if message.hidden_dim == 0:
        raise_invalid(where, "hidden_dim is 0", hint="set it above 0")
    if not math.isfinite(ratio) or ratio < 0 or (ratio == 0 and message.aggregation_dim == 0):
        raise_invalid(
            where,
            f"reduction_ratio is {ratio:g} and aggregation_dim {message.aggregation_dim}",
            hint="set reduction_ratio above 0, or to 0 with aggregation_dim above 0",
        )
    return MaskBlockConfig(
        hidden_dim=message.hidden_dim,
        reduction_ratio=ratio,
        aggregation_dim=0 if ratio else message.aggregation_dim,
    )
