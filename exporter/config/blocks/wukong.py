"""Wukong layer (Zhang et al. 2024, arXiv:2403.02545): its settings, and the reader of its message."""

from dataclasses import dataclass

from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.pb.module_pb2 import WuKongLayer
from exporter.config.refusals import raise_invalid


@dataclass(frozen=True, kw_only=True)
class WukongLayerConfig:
    """One layer: some of its output vectors come from products of its inputs, the others are sums of them."""

    linear_vectors: int  # lcb_feature_num
    product_vectors: int  # fmb_feature_num
    compressed: int  # compressed_feature_num: sums of inputs that each input is multiplied with
    mlp: MlpConfig  # feature_num_mlp: over all products

    @property
    def vectors(self) -> int:
        """Number of the layer's output vectors."""
        return self.linear_vectors + self.product_vectors


def read_wukong_layer(message: WuKongLayer, where: str) -> WukongLayerConfig:
    """Read one layer; `where` is its place in the config, for errors.

    Raises:
        InvalidPipelineConfig: a number of vectors is 0.
        UnsupportedConfig: the activation of the MLP is unknown.
    """
    for field in ("lcb_feature_num", "fmb_feature_num", "compressed_feature_num"):
        if getattr(message, field) == 0:
            raise_invalid(where, f"{field} is 0", hint="set it to what the layer was trained with")
    return WukongLayerConfig(
        linear_vectors=message.lcb_feature_num,
        product_vectors=message.fmb_feature_num,
        compressed=message.compressed_feature_num,
        mlp=read_mlp(message.feature_num_mlp, f"{where}.feature_num_mlp"),
    )
