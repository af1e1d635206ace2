"""contextual_preprocessor and contextual_interleave_preprocessor: candidates follow the history.

B rows, N events and M candidates of all rows together, P = N + M, D width.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from exporter.config.hstu.encoder import ContextualPreprocessorConfig
from exporter.models.blocks.jagged import Layout, RowJoin
from exporter.models.hstu.content_encoder import build_content_encoder
from exporter.models.hstu.groups import CandidateGroups, HistoryGroups
from exporter.models.hstu.preprocessor import Preprocessor
from exporter.models.hstu.sequence import EncoderSequence


class ContextualPreprocessor(Preprocessor):
    """Sequence of the contents of events and candidates, with actions added to them or put between them."""

    def __init__(
        self,
        config: ContextualPreprocessorConfig,
        groups: HistoryGroups,
        candidates: CandidateGroups,
        *,
        width: int,
        contextual_dropout: float,
    ) -> None:
        super().__init__(groups, width=width, contextual_dropout=contextual_dropout)
        self._candidates = candidates
        self._interleaved = config.interleaved
        self._add_context()
        self._content_encoder = build_content_encoder(
            config.content_encoder, uih=groups.event_width, target=candidates.width
        )
        self._content_embedding_mlp = self._mlp(config.content_mlp, self._content_encoder.out_features)
        self._add_actions(config)

    def forward(self, embedded: Mapping[str, Tensor]) -> EncoderSequence:
        events, targets = embedded[self.groups.events], embedded[self._candidates.items]
        history = Layout.of(embedded[self.groups.event_lengths], total=events.shape[0])
        candidates = Layout.of(embedded[self._candidates.lengths], total=targets.shape[0])
        joined = RowJoin.of(history, candidates)
        context = self._context(embedded)
        contents = joined.join(*self._content_encoder(events, targets))
        content_PD = self._content_embedding_mlp(contents, joined.layout, context)
        times_P = joined.join(
            embedded[self.groups.timestamps], embedded[self._candidates.timestamps]
        ).squeeze(-1)
        sequence = EncoderSequence(
            values=content_PD, timestamps=times_P, layout=joined.layout, candidates=candidates
        )
        if self._action_encoder is not None:
            actions = joined.join(
                self._encode_actions(self._action_encoder, embedded),
                self._action_encoder.encode_candidates(candidates.total),
            )
            action_PD = self._action_embedding_mlp(actions, joined.layout, context)
            sequence = self._with_actions(sequence, action_PD, history)
        return self._with_context(sequence, context)

    def _with_actions(self, sequence: EncoderSequence, action_PD: Tensor, history: Layout) -> EncoderSequence:
        if self._interleaved:
            return _interleave(sequence, action_PD, history)
        return EncoderSequence(
            values=sequence.values + action_PD,
            timestamps=sequence.timestamps,
            layout=sequence.layout,
            candidates=sequence.candidates,
        )


def _interleave(sequence: EncoderSequence, action_PD: Tensor, history: Layout) -> EncoderSequence:
    """Insert the action of every event behind its content; candidates have no action yet."""
    plain, candidates = sequence.layout, sequence.candidates
    assert candidates is not None
    layout = Layout.of(2 * history.lengths + candidates.lengths, total=2 * history.total + candidates.total)
    rows, places = layout.rows, layout.places
    events = history.lengths[rows]
    is_event = places < 2 * events
    place_before = torch.where(is_event, places // 2, places - events)
    before = (plain.offsets[rows] + place_before).clamp(max=plain.total - 1)
    is_action = is_event & (places % 2 == 1)
    return EncoderSequence(
        values=torch.cat([sequence.values, action_PD])[before + is_action * plain.total],
        timestamps=sequence.timestamps[before],
        layout=layout,
        candidates=candidates,
    )
