"""Dense embeddings: vectors of plain numbers, by weights of each feature's own.

B rows, V values of a feature, C channels, D width of the embedding.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.blocks.dense_embedding import (
    AutoDisConfig,
    DenseEmbeddingConfig,
    LinearEmbeddingConfig,
)


class DenseEmbedding(nn.Module, ABC):
    """Weights of all features with equal settings, named as in the checkpoint."""

    @abstractmethod
    def add(self, feature: str) -> None:
        """Add the weights of a feature, unless it has them already."""

    @abstractmethod
    def embed(self, feature: str, x_BV: Tensor) -> Tensor:
        """Return the embedding of the feature's values: (B, D)."""


class AutoDis(DenseEmbedding):
    """AutoDis of several features with equal settings (Guo et al., KDD 2021, arXiv:2012.08986).

    Automatic discretization: a number x scores the channels, h = LeakyReLU(w x) and z = M h + α h.
    Aggregation: it becomes the mean of their meta-embeddings, weighted by softmax(z / τ). `keep_prob` is α,
    the weight of the skip connection; nothing is dropped.
    """

    def __init__(self, config: AutoDisConfig) -> None:
        super().__init__()
        self._config = config

    def add(self, feature: str) -> None:
        size = self._config.channels
        _add_weight(self, f"meta_emb_{feature}", size, self._config.dim)
        _add_weight(self, f"proj_w_{feature}", size)
        _add_weight(self, f"proj_m_{feature}", size, size)

    def embed(self, feature: str, x_BV: Tensor) -> Tensor:
        meta_CD, w_C, m_CC = (
            self.get_parameter(f"{name}_{feature}.weight") for name in ("meta_emb", "proj_w", "proj_m")
        )
        h_BC = F.leaky_relu(x_BV * w_C)
        z_BC = h_BC @ m_CC.T + self._config.keep_prob * h_BC
        return torch.softmax(z_BC / self._config.temperature, dim=1) @ meta_CD


class LinearEmbedding(DenseEmbedding):
    """TorchEasyRec's `mlp` embedding of features with equal settings: x W, without bias and activation."""

    def __init__(self, config: LinearEmbeddingConfig) -> None:
        super().__init__()
        self._config = config

    def add(self, feature: str) -> None:
        size = () if self._config.value_dim == 1 else (self._config.value_dim,)
        _add_weight(self, f"proj_w_{feature}", *size, self._config.dim)

    def embed(self, feature: str, x_BV: Tensor) -> Tensor:
        return x_BV @ self.get_parameter(f"proj_w_{feature}.weight").reshape(-1, self._config.dim)


def build_dense_embedding(config: DenseEmbeddingConfig) -> DenseEmbedding:
    """Build the module that holds all features of these settings, as yet without any."""
    return AutoDis(config) if isinstance(config, AutoDisConfig) else LinearEmbedding(config)


def _add_weight(module: nn.Module, name: str, *shape: int) -> None:
    """Add a weight that the checkpoint names as if it were a layer's; dots in a feature's name are steps."""
    for step in name.split("."):
        if step not in dict(module.named_children()):
            module.add_module(step, nn.Module())
        module = module.get_submodule(step)
    if "weight" not in dict(module.named_parameters(recurse=False)):
        module.register_parameter("weight", nn.Parameter(torch.randn(shape)))
