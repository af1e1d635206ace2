"""uih_preprocessor: builds one sequence of a user's context and history.

B rows, N events of all histories together, C contextual features, U widths in, D width out.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import sqrt

import torch
from torch import Tensor, nn

from exporter.config.hstu.encoder import (
    ContextualizedMlpConfig,
    ContextualPreprocessorConfig,
    UihPreprocessorConfig,
)
from exporter.models.blocks.jagged import Layout, RowJoin
from exporter.models.hstu.action_encoder import ActionEncoder
from exporter.models.hstu.contextualized_mlp import ParameterizedMlp, SimpleMlp
from exporter.models.hstu.groups import HistoryGroups
from exporter.models.hstu.sequence import EncoderSequence


class Preprocessor(nn.Module, ABC):
    """Base of the preprocessors: contextual elements in front of the sequence, and encoded actions."""

    _action_encoder: ActionEncoder | None

    def __init__(self, groups: HistoryGroups, *, width: int, contextual_dropout: float) -> None:
        super().__init__()
        self.groups = groups
        self._width = width
        self._contextual_dropout = contextual_dropout

    @abstractmethod
    def forward(self, embedded: Mapping[str, Tensor]) -> EncoderSequence:
        """Build the sequence from the embedded groups."""

    def _add_context(self) -> None:
        count, inner = self.groups.contextual_count, self.groups.contextual_width
        if count:
            self._batched_contextual_linear_weights = nn.Parameter(torch.empty(count, inner, self._width))
            self._batched_contextual_linear_bias = nn.Parameter(torch.zeros(count, 1, self._width))
            nn.init.normal_(self._batched_contextual_linear_weights, std=sqrt(2 / (inner + self._width)))

    def _add_actions(self, config: UihPreprocessorConfig | ContextualPreprocessorConfig) -> None:
        self._action_encoder = None
        if config.action_encoder is not None:
            assert config.action_mlp is not None
            self._action_encoder = ActionEncoder(config.action_encoder)
            self._action_embedding_mlp = self._mlp(config.action_mlp, self._action_encoder.out_features)

    def _mlp(self, config: ContextualizedMlpConfig, in_features: int) -> SimpleMlp | ParameterizedMlp:
        if not config.parameterized:
            return SimpleMlp(in_features, config.hidden_dim, self._width)
        return ParameterizedMlp(
            in_features,
            config.hidden_dim,
            self._width,
            context=self.groups.contextual_count * self.groups.contextual_width,
            dropout=self._contextual_dropout,
        )

    def _context(self, embedded: Mapping[str, Tensor]) -> Tensor | None:
        return embedded[self.groups.contextual] if self.groups.contextual_count else None

    def _encode_actions(self, encoder: ActionEncoder, embedded: Mapping[str, Tensor]) -> Tensor:
        watchtimes_N1 = embedded[self.groups.watchtimes] if encoder.needs_watchtime else None
        encoded: Tensor = encoder(embedded[self.groups.actions], watchtimes_N1)
        return encoded

    def _with_context(self, sequence: EncoderSequence, context: Tensor | None) -> EncoderSequence:
        """Put each contextual feature, through a linear layer of its own, in front of every row."""
        if context is None:
            return sequence
        context_CBU = context.unflatten(1, (self.groups.contextual_count, -1)).transpose(0, 1)
        prefix_CBD = torch.baddbmm(
            self._batched_contextual_linear_bias, context_CBU, self._batched_contextual_linear_weights
        )
        # Always copied: flattening would ask whether it must copy, and the answer depends on B.
        prefix_BCD = prefix_CBD.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        prefix = Layout.uniform(self.groups.contextual_count, like=sequence.layout)
        joined = RowJoin.of(prefix, sequence.layout)
        return EncoderSequence(
            values=joined.join(prefix_BCD.flatten(0, 1), sequence.values),
            timestamps=joined.join(sequence.timestamps.new_zeros(prefix.total), sequence.timestamps),
            layout=joined.layout,
            candidates=sequence.candidates,
        )


class UihPreprocessor(Preprocessor):
    """Sequence of projected events with their actions added, behind the contextual features."""

    def __init__(
        self, config: UihPreprocessorConfig, groups: HistoryGroups, *, width: int, contextual_dropout: float
    ) -> None:
        super().__init__(groups, width=width, contextual_dropout=contextual_dropout)
        self._input_projection = nn.Linear(groups.event_width, width)
        self._add_context()
        self._add_actions(config)

    def forward(self, embedded: Mapping[str, Tensor]) -> EncoderSequence:
        events_NU = embedded[self.groups.events]
        layout = Layout.of(embedded[self.groups.event_lengths], total=events_NU.shape[0])
        context = self._context(embedded)
        values_ND = self._input_projection(events_NU)
        if self._action_encoder is not None:
            actions = self._encode_actions(self._action_encoder, embedded)
            values_ND = values_ND + self._action_embedding_mlp(actions, layout, context)
        timestamps_N = embedded[self.groups.timestamps].squeeze(-1)
        return self._with_context(
            EncoderSequence(values=values_ND, timestamps=timestamps_N, layout=layout), context
        )
