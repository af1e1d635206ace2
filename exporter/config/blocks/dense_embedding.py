"""Dense embeddings, which turn plain numbers into vectors: their settings, and their keys in a checkpoint."""

from dataclasses import dataclass

from exporter.config.pb.embedding_pb2 import AutoDisEmbedding


@dataclass(frozen=True, kw_only=True)
class AutoDisConfig:
    """AutoDis (Guo et al., KDD 2021): a number becomes a mixture of learned vectors, one per channel."""

    dim: int
    channels: int
    temperature: float
    keep_prob: float

    def key(self, feature: str) -> str:
        """Return the name under which the checkpoint keeps features of these settings."""
        numbers = f"{self.keep_prob:.6f}#{self.temperature:.6f}".replace(".", "_")
        return f"autodis#{self.dim}#{self.channels}#{numbers}"


@dataclass(frozen=True, kw_only=True)
class LinearEmbeddingConfig:
    """TorchEasyRec's `mlp`: numbers are multiplied by a matrix, without bias and activation."""

    dim: int
    value_dim: int

    def key(self, feature: str) -> str:
        """Return the name under which the checkpoint keeps the feature; vectors are kept one by one."""
        if self.value_dim == 1:
            return f"mlp#{self.dim}"
        return f"mlp#{self.dim}#vdim#{self.value_dim}#feature_name#{' ' * 12}{feature}"


DenseEmbeddingConfig = AutoDisConfig | LinearEmbeddingConfig


def read_autodis(message: AutoDisEmbedding, dim: int) -> AutoDisConfig:
    """Read the settings of AutoDis for vectors of width `dim`."""
    return AutoDisConfig(
        dim=dim,
        channels=message.num_channels,
        temperature=message.temperature,
        keep_prob=message.keep_prob,
    )
