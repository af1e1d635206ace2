"""uih_preprocessor: a user's context and history become one sequence.

B rows, N events of all histories together, C contextual features, U widths in, D width out.
"""

from collections.abc import Mapping
from math import sqrt

import torch
from torch import Tensor, nn

from exporter.config.hstu import ContextualizedMlpConfig, UihPreprocessorConfig
from exporter.models.hstu.action_encoder import ActionEncoder
from exporter.models.hstu.contextualized_mlp import ParameterizedMlp, SimpleMlp
from exporter.models.hstu.groups import HistoryGroups
from exporter.models.jagged import Layout, prepend


class UihPreprocessor(nn.Module):
    """Projects events, adds what was done to them, and puts the contextual features in front."""

    def __init__(
        self, config: UihPreprocessorConfig, groups: HistoryGroups, *, width: int, contextual_dropout: float
    ) -> None:
        super().__init__()
        self._groups = groups
        self._input_projection = nn.Linear(groups.event_width, width)
        if groups.contextual_count:
            count, inner = groups.contextual_count, groups.contextual_width
            self._batched_contextual_linear_weights = nn.Parameter(torch.empty(count, inner, width))
            self._batched_contextual_linear_bias = nn.Parameter(torch.zeros(count, 1, width))
            nn.init.normal_(self._batched_contextual_linear_weights, std=sqrt(2 / (inner + width)))
        self._action_encoder: ActionEncoder | None = None
        if config.action_encoder is not None:
            assert config.action_mlp is not None
            self._action_encoder = ActionEncoder(config.action_encoder)
            self._action_embedding_mlp = _mlp(
                config.action_mlp, groups, self._action_encoder.out_features, width, contextual_dropout
            )

    def forward(self, embedded: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Layout]:
        """The sequence's embeddings (P, D), its timestamps (P,), where P = N + B * C, and its layout."""
        events_NU = embedded[self._groups.events]
        layout = Layout.of(embedded[self._groups.event_lengths], total=events_NU.shape[0])
        context = embedded[self._groups.contextual] if self._groups.contextual_count else None
        values_ND = self._input_projection(events_NU)
        if self._action_encoder is not None:
            values_ND = values_ND + self._actions(self._action_encoder, embedded, layout, context)
        timestamps_N1 = embedded[self._groups.timestamps]
        if context is None:
            return values_ND, timestamps_N1.squeeze(-1), layout
        prefix_BCD = self._prefix(context)
        zeros_BC1 = timestamps_N1.new_zeros(prefix_BCD.shape[:2]).unsqueeze(-1)
        return (
            prepend(prefix_BCD, values_ND, layout),
            prepend(zeros_BC1, timestamps_N1, layout).squeeze(-1),
            layout.with_prefix(self._groups.contextual_count),
        )

    def _actions(
        self, encoder: ActionEncoder, embedded: Mapping[str, Tensor], layout: Layout, context: Tensor | None
    ) -> Tensor:
        watchtimes_N1 = embedded[self._groups.watchtimes] if encoder.needs_watchtime else None
        actions = encoder(embedded[self._groups.actions], watchtimes_N1)
        actions_ND: Tensor = self._action_embedding_mlp(actions, layout, context)
        return actions_ND

    def _prefix(self, context: Tensor) -> Tensor:
        """Each contextual feature through a linear layer of its own: (B, C * U) to (B, C, D)."""
        context_CBU = context.unflatten(1, (self._groups.contextual_count, -1)).transpose(0, 1)
        return torch.baddbmm(
            self._batched_contextual_linear_bias, context_CBU, self._batched_contextual_linear_weights
        ).transpose(0, 1)


def _mlp(
    config: ContextualizedMlpConfig, groups: HistoryGroups, in_features: int, width: int, dropout: float
) -> SimpleMlp | ParameterizedMlp:
    if not config.parameterized:
        return SimpleMlp(in_features, config.hidden_dim, width)
    context = groups.contextual_count * groups.contextual_width
    return ParameterizedMlp(in_features, config.hidden_dim, width, context=context, dropout=dropout)
