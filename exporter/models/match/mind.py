"""mind (Li et al. 2019, arXiv:1904.08030): several vectors per user from a padded history, one per item.

B rows, K interests per user, D width of the outputs.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.families.match.mind import MindConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.models.blocks.capsules import build_capsules
from exporter.models.blocks.mlp import Mlp
from exporter.models.match_tower import (
    DeepTower,
    MatchTower,
    build_projection,
    make_builders,
    normalise,
)
from exporter.spec import TowerName


class MindUserTower(MatchTower):
    """Interests of the history, each concatenated with the user's features: (B, K, D).

    A row has as many of the K vectors as its history is long enough for, and zeros behind them.
    """

    def __init__(self, pipeline: PipelineConfig, model: MindConfig) -> None:
        super().__init__(pipeline)
        user = model.user
        self._config = model
        self._history = user.history_input
        self.user_mlp, self.user_mlp_out = _projecting(
            group_width(pipeline, user.input), user.user_mlp, padded=False
        )
        width = group_width(pipeline, f"{user.history_input}.sequence")
        self._hist_seq_mlp: nn.Module = nn.Identity()
        self._hist_seq_mlp_out: nn.Module = nn.Identity()
        if user.history_mlp is not None:
            self._hist_seq_mlp, self._hist_seq_mlp_out = _projecting(width, user.history_mlp, padded=True)
            width = user.history_mlp.hidden_units[-1]
        self._capsule_layer = build_capsules(width, user.capsules)
        width = user.user_mlp.hidden_units[-1] + user.capsules.high_dim
        self._concat_mlp: nn.Module = nn.Identity()
        if user.concat_mlp is not None:
            self._concat_mlp = Mlp(width, user.concat_mlp, padded=True)
            width = user.concat_mlp.hidden_units[-1]
        self.output = build_projection(width, model, bias=False)

    def remarks(self) -> tuple[str, ...]:
        return self._capsule_layer.remarks()

    def represent(self, groups: Mapping[str, Tensor]) -> Tensor:
        user_BD = self.user_mlp_out(self.user_mlp(groups[self._config.user.input]))
        events_BLD = self._hist_seq_mlp_out(self._hist_seq_mlp(groups[f"{self._history}.sequence"]))
        interests_BKD, is_valid_BK = self._capsule_layer(
            events_BLD, groups[f"{self._history}.sequence_length"]
        )
        user_BKD = user_BD.unsqueeze(1).expand(-1, interests_BKD.shape[1], -1)
        joined_BKD = self._concat_mlp(torch.cat([user_BKD, interests_BKD], dim=-1))
        joined_BKD = torch.where(is_valid_BK.unsqueeze(2), joined_BKD, 0)
        return normalise(self.output(joined_BKD), self._config.similarity)


def _tower(config: TowerConfig) -> MatchTower:
    model = config.pipeline.model
    assert isinstance(model, MindConfig)
    if config.name is TowerName.ITEM:
        return DeepTower(config.pipeline, model, model.item)
    return MindUserTower(config.pipeline, model)


def _projecting(in_features: int, config: MlpConfig, *, padded: bool) -> tuple[nn.Module, nn.Module]:
    """Build an MLP in two parts, as TorchEasyRec names them: all layers but the last, and the last.

    The last is a plain projection. A single layer takes the name of the others.
    """
    *before, last = config.hidden_units
    if not before:
        return nn.Linear(in_features, last, bias=config.bias), nn.Identity()
    stack = Mlp(in_features, replace(config, hidden_units=tuple(before)), padded=padded)
    return stack, nn.Linear(before[-1], last, bias=config.bias)


build_served, build_trained = make_builders(_tower)
