"""Variational dropout: training drops features of a group at random, by learned rates.

A served model scales each feature by its learned rate of being kept. B rows, F features of a group, D width
of all of them.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from exporter.config.features.widths import feature_widths
from exporter.config.schema import PipelineConfig


class VariationalDropout(nn.Module):
    """Variational dropout of one group, whose features have the given widths."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self._widths = tuple(widths)
        self.feature_p = nn.Parameter(torch.randn(len(widths)))
        # The checkpoint holds it, but nothing reads it: the widths come from the config.
        self.feature_dim_repeat = nn.Parameter(torch.tensor(widths, dtype=torch.int32), requires_grad=False)

    def forward(self, group_BD: Tensor) -> Tensor:
        kept_F = 1 - self.feature_p.sigmoid()
        kept = zip(kept_F.unbind(), self._widths, strict=True)
        return group_BD * torch.cat([rate.expand(width) for rate, width in kept])


class GroupDropouts(nn.ModuleDict):
    """Variational dropouts of a tower, by group; only vectors of several features have one."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__()
        if not pipeline.variational_dropout:
            return
        features = {feature.name: feature for feature in pipeline.features}
        for group in pipeline.groups:
            if not group.kind.is_row_vector:
                continue
            widths = feature_widths(group, features)
            if len(widths) > 1:
                self[group.name] = VariationalDropout(widths)

    def forward(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the embedded groups by key, with those scaled that have a dropout."""
        return {key: self[key](group) if key in self else group for key, group in embedded.items()}
