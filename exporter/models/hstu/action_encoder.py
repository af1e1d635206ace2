"""Encoder of the user's actions: one embedding per bit of an action mask.

N events, A actions, E width of one action's embedding.
"""

import torch
from torch import Tensor, nn

from exporter.config.hstu.encoder import ActionEncoderConfig


class ActionEncoder(nn.Module):
    """simple_action_encoder: the embeddings of an event's actions, with zeros for actions it lacks."""

    _combined_action_weights: Tensor  # A bit masks; a buffer, because the checkpoint holds them

    def __init__(self, config: ActionEncoderConfig) -> None:
        super().__init__()
        self._watchtimes = tuple(zip(config.watchtime_thresholds, config.watchtime_weights, strict=True))
        masks = [*config.action_weights, *config.watchtime_weights]
        self.register_buffer("_combined_action_weights", torch.tensor(masks))
        self.out_features = len(masks) * config.embedding_dim
        self._action_embedding_table = nn.Parameter(torch.empty(len(masks), config.embedding_dim))
        # Stands for the unknown actions on candidates; unused if the sequence holds history only.
        self._target_action_embedding_table = nn.Parameter(torch.empty(1, self.out_features))
        nn.init.normal_(self._action_embedding_table, std=0.1)
        nn.init.normal_(self._target_action_embedding_table, std=0.1)

    @property
    def needs_watchtime(self) -> bool:
        return bool(self._watchtimes)

    def forward(self, actions_N1: Tensor, watchtimes_N1: Tensor | None) -> Tensor:
        """Return the encoded actions (N, A * E) of (N, 1) masks and (N, 1) watch times in seconds."""
        masks_N1 = actions_N1.long()
        if watchtimes_N1 is not None:
            for threshold, mask in self._watchtimes:
                masks_N1 = masks_N1 | (watchtimes_N1 >= threshold).long() * mask
        done_NA = (masks_N1 & self._combined_action_weights) > 0
        return (done_NA.unsqueeze(-1) * self._action_embedding_table).flatten(1)

    def encode_candidates(self, count: int) -> Tensor:
        """Return the placeholder of the actions of `count` candidates, (M, A * E)."""
        return self._target_action_embedding_table.expand(count, -1)
