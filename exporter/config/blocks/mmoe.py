"""Multi-gate mixture of experts (Ma et al., KDD 2018): its settings."""

from dataclasses import dataclass

from exporter.config.blocks.mlp import MlpConfig


@dataclass(frozen=True, kw_only=True)
class MmoeConfig:
    """Experts over one input; every task mixes their outputs by a gate of its own."""

    expert_mlp: MlpConfig
    num_expert: int
    gate_mlp: MlpConfig | None = None
