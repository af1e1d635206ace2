"""Postprocessors: the last step over the encoded elements, each by itself.

N elements, D width, K periods of time.
"""

import torch
from torch import Tensor, nn

from exporter.config.hstu.encoder import PostprocessorConfig, PostprocessorKind
from exporter.models.hstu.contextualized_mlp import xavier_linear

_TURN = 2 * 3.14  # a full turn as TorchEasyRec has it, with which weights were trained


class L2Norm(nn.Module):
    """l2norm_postprocessor: scales every element to unit length."""

    def forward(self, x_ND: Tensor, timestamps_N: Tensor) -> Tensor:
        return x_ND / torch.linalg.vector_norm(x_ND, dim=-1, keepdim=True).clamp(min=1e-6)


class LayerNorm(nn.Module):
    """layernorm_postprocessor: layer norm of every element."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._layer_norm = nn.LayerNorm(width)

    def forward(self, x_ND: Tensor, timestamps_N: Tensor) -> Tensor:
        y_ND: Tensor = self._layer_norm(x_ND)
        return y_ND


class TimestampLayerNorm(nn.Module):
    """timestamp_layernorm_postprocessor: mixes in periods such as the hour of the day, then layer norm."""

    _period_units: Tensor  # (1, K) seconds per unit
    _units_per_period: Tensor  # (1, K)

    def __init__(self, width: int, config: PostprocessorConfig) -> None:
        super().__init__()
        self._layer_norm = nn.LayerNorm(width)
        self.register_buffer("_period_units", torch.tensor([config.period_units], dtype=torch.float32))
        self.register_buffer(
            "_units_per_period", torch.tensor([config.units_per_period], dtype=torch.float32)
        )
        self._time_feature_combiner = xavier_linear(width + 2 * len(config.period_units), width)

    def forward(self, x_ND: Tensor, timestamps_N: Tensor) -> Tensor:
        seconds_N1 = timestamps_N.unsqueeze(-1)
        # Floor division of floats as eager defines it: inductor floors a rounded quotient instead, which is
        # one unit too many just before a full one.
        rest_NK = torch.fmod(seconds_N1, self._period_units)
        units_NK = torch.round((seconds_N1 - rest_NK) / self._period_units)
        angle_NK = torch.fmod(units_NK, self._units_per_period) / self._units_per_period * _TURN
        time = torch.stack([angle_NK.cos(), angle_NK.sin()], dim=-1).flatten(1)
        y_ND: Tensor = self._layer_norm(self._time_feature_combiner(torch.cat([x_ND, time], dim=1)))
        return y_ND


def build_postprocessor(config: PostprocessorConfig, width: int) -> L2Norm | LayerNorm | TimestampLayerNorm:
    match config.kind:
        case PostprocessorKind.L2NORM:
            return L2Norm()
        case PostprocessorKind.LAYERNORM:
            return LayerNorm(width)
        case PostprocessorKind.TIMESTAMP_LAYERNORM:
            return TimestampLayerNorm(width, config)
