"""The order of elements in a row: context, events with their actions, candidates."""

import torch
from torch import Tensor, nn

from exporter.config.hstu.encoder import (
    ActionEncoderConfig,
    ContentEncoderConfig,
    ContentEncoderKind,
    ContextualizedMlpConfig,
    ContextualPreprocessorConfig,
)
from exporter.models.blocks.jagged import Layout
from exporter.models.hstu.contextual_preprocessor import ContextualPreprocessor
from exporter.models.hstu.groups import CandidateGroups, HistoryGroups
from exporter.models.hstu.sequence import EncoderSequence

_HUNDRED = 100.0  # apart from contents, so that actions can be told from them


class Fixed(nn.Module):
    """Stands where an MLP stands: adds a number to what it is given."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def forward(self, x: Tensor, layout: Layout, context: Tensor | None) -> Tensor:
        return x[:, :1] + self._number


def preprocessed(*, interleaved: bool, context: bool = False) -> EncoderSequence:
    """Rows of 2 events and 1 candidate, and of none and 2."""
    mlp = ContextualizedMlpConfig(hidden_dim=1)
    config = ContextualPreprocessorConfig(
        content_encoder=ContentEncoderConfig(kind=ContentEncoderKind.SLICE),
        content_mlp=mlp,
        action_encoder=ActionEncoderConfig(embedding_dim=1, action_weights=(1,)),
        action_mlp=mlp,
        interleaved=interleaved,
    )
    groups = HistoryGroups(
        prefix="uih", event_width=1, contextual_count=int(context), contextual_width=int(context)
    )
    module = ContextualPreprocessor(config, groups, CandidateGroups(width=1), width=1, contextual_dropout=0.0)
    for weight in module.parameters():
        weight.data.zero_()
    module._content_embedding_mlp = Fixed(0.0)  # type: ignore[assignment]  # stands in for an MLP
    module._action_embedding_mlp = Fixed(_HUNDRED)  # type: ignore[assignment]  # stands in for an MLP
    sequence: EncoderSequence = module(
        {
            "contextual": torch.zeros(2, 1),
            "uih.sequence": torch.tensor([[1.0], [2.0]]),
            "uih.sequence_length": torch.tensor([2, 0]),
            "uih_action.sequence": torch.zeros(2, 1),
            "uih_timestamp.sequence": torch.tensor([[11.0], [12.0]]),
            "candidate.sequence": torch.tensor([[3.0], [4.0], [5.0]]),
            "candidate.sequence_length": torch.tensor([1, 2]),
            "candidate_timestamp.sequence": torch.tensor([[13.0], [14.0], [15.0]]),
        }
    )
    return sequence


def test_candidates_come_behind_the_history_of_their_row() -> None:
    sequence = preprocessed(interleaved=False)
    assert sequence.values.flatten().tolist() == [101, 102, 103, 104, 105]
    assert sequence.timestamps.tolist() == [11, 12, 13, 14, 15]
    assert sequence.history_lengths.tolist() == [2, 0]


def test_an_action_comes_behind_its_event_and_candidates_have_none() -> None:
    sequence = preprocessed(interleaved=True)
    assert sequence.values.flatten().tolist() == [1, 100, 2, 100, 3, 4, 5]
    assert sequence.timestamps.tolist() == [11, 11, 12, 12, 13, 14, 15]
    assert sequence.layout.lengths.tolist() == [5, 2]


def test_the_context_comes_first() -> None:
    sequence = preprocessed(interleaved=True, context=True)
    assert sequence.timestamps.tolist() == [0, 11, 11, 12, 12, 13, 0, 14, 15]
    assert sequence.history_lengths.tolist() == [5, 1]
