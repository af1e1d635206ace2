"""Sequence encoders: of a padded sequence, and mostly of a query, one vector per row.

B rows, T places of the longest row, D width of the sequence, E of a head, W of all heads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.sequence_encoders import (
    DinEncoderConfig,
    MultiWindowDinEncoderConfig,
    PoolingEncoderConfig,
    SelfAttentionEncoderConfig,
    SequenceEncoderConfig,
    SequencePooling,
    SimpleAttentionConfig,
)
from exporter.models.blocks.mlp import Mlp

# The score of a place that a row does not fill. A row that fills none weighs all alike.
_UNFILLED = float(-(2**31) + 1)


def build_encoder(config: SequenceEncoderConfig, *, query_width: int, sequence_width: int) -> nn.Module:
    """The encoder of a DEEP group: from the embedded groups, by key, to its block (B, `encoder_width`).

    It reads `<group>.sequence` (B, T, D), filled with zeros behind each row, `<group>.sequence_length`
    (B,) and, if it has a query, `<group>.query` (B, up to D).
    """
    match config:
        case DinEncoderConfig():
            return DinEncoder(
                config.group,
                config.attn_mlp,
                query_width=query_width,
                sequence_width=sequence_width,
                max_seq_length=config.max_seq_length,
            )
        case SimpleAttentionConfig():
            return SimpleAttention(config)
        case PoolingEncoderConfig():
            return PoolingEncoder(config)
        case MultiWindowDinEncoderConfig():
            return MultiWindowDinEncoder(config, query_width=query_width, sequence_width=sequence_width)
        case SelfAttentionEncoderConfig():
            return SelfAttentionEncoder(config, sequence_width)


class DinEncoder(nn.Module):
    """The sequence's mean, weighed by what perceptrons make of each element beside the query."""

    def __init__(
        self,
        group: str,
        attn_mlp: MlpConfig,
        *,
        query_width: int,
        sequence_width: int,
        max_seq_length: int = 0,
    ) -> None:
        super().__init__()
        self._group = group
        self._lacking = sequence_width - query_width
        self._limit = max_seq_length
        self.mlp = Mlp(4 * sequence_width, attn_mlp, padded=True)
        self.linear = nn.Linear(self.mlp.out_features, 1)

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        padded = _Padded.of(embedded, self._group).cut(self._limit)
        sequence = padded.sequence
        query = F.pad(embedded[f"{self._group}.query"], (0, self._lacking))
        query = query.unsqueeze(1).expand_as(sequence)
        beside = torch.cat([query, sequence, query - sequence, query * sequence], dim=2)
        return padded.attended(_only(self.linear(self.mlp(beside))))


class SimpleAttention(nn.Module):
    """The sequence's mean, weighed by each element's product with the query."""

    def __init__(self, config: SimpleAttentionConfig) -> None:
        super().__init__()
        self._config = config

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        padded = _Padded.of(embedded, self._config.group).cut(self._config.max_seq_length)
        query = embedded[f"{self._config.group}.query"].unsqueeze(1)
        return padded.attended((padded.sequence * query).sum(dim=2))


class PoolingEncoder(nn.Module):
    """The sequence's sum or mean."""

    def __init__(self, config: PoolingEncoderConfig) -> None:
        super().__init__()
        self._config = config

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        padded = _Padded.of(embedded, self._config.group).cut(self._config.max_seq_length)
        summed = padded.sequence.sum(dim=1)
        if self._config.pooling is SequencePooling.SUM:
            return summed
        return summed / padded.lengths.clamp(min=1).unsqueeze(1)


class MultiWindowDinEncoder(nn.Module):
    """For each window of places the mean of what elements there score beside the query; then the query."""

    def __init__(self, config: MultiWindowDinEncoderConfig, *, query_width: int, sequence_width: int) -> None:
        super().__init__()
        self._group = config.group
        self._lacking = sequence_width - query_width
        self._bounds = tuple(accumulate(config.windows, initial=0))
        self.register_buffer("windows_len", torch.tensor(config.windows))
        self.register_buffer("cumsum_windows_len", torch.tensor(self._bounds[:-1]))
        self.mlp = Mlp(3 * sequence_width, config.attn_mlp, padded=True)
        self.linear = nn.Linear(self.mlp.out_features, 1)
        self.active = nn.PReLU()

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        padded = _Padded.of(embedded, self._group)
        sequence = padded.sequence
        query = F.pad(embedded[f"{self._group}.query"], (0, self._lacking))
        queries = query.unsqueeze(1).expand_as(sequence)
        beside = torch.cat([sequence, queries * sequence, queries], dim=2)
        scores = self.active(_only(self.linear(self.mlp(beside)))) * padded.filled
        # As many places as the windows have, whatever T is: those that lack are zeros.
        places = F.pad(scores.unsqueeze(2) * sequence, (0, 0, 0, self._bounds[-1]))
        sums = [places[:, start:end].sum(dim=1) for start, end in pairwise(self._bounds)]
        means = torch.stack(sums, dim=1) / self._counts(padded.lengths).unsqueeze(2)
        return torch.cat([means.flatten(1), query], dim=1)

    def _counts(self, lengths_B: Tensor) -> Tensor:
        """How many elements each window has of each row; 1 where it has none."""
        behind = lengths_B.unsqueeze(1) - self.get_buffer("cumsum_windows_len")
        return torch.minimum(behind, self.get_buffer("windows_len")).clamp(min=1)


class SelfAttentionEncoder(nn.Module):
    """Every element attends to all of its row; the mean of what comes of it.

    A row that is cut to `max_seq_length` is still divided by its whole length, as TorchEasyRec does.
    """

    def __init__(self, config: SelfAttentionEncoderConfig, width: int) -> None:
        super().__init__()
        self._config = config
        self._query = nn.Linear(width, config.width)
        self._key = nn.Linear(width, config.width)
        self._value = nn.Linear(width, config.width)
        self._multihead_attn = nn.MultiheadAttention(config.width, config.num_heads, batch_first=True)

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        padded = _Padded.of(embedded, self._config.group)
        whole_B1 = padded.lengths.clamp(min=1).unsqueeze(1)
        padded = padded.cut(self._config.max_seq_length)
        attended = self._attended(padded.sequence, padded.filled)
        return (attended * padded.filled.unsqueeze(2)).sum(dim=1) / whole_B1

    def _attended(self, sequence_BTD: Tensor, filled_BT: Tensor) -> Tensor:
        """(B, T, W); what stands at places that a row does not fill means nothing."""
        attention = self._multihead_attn
        projections = (self._query, self._key, self._value)
        weights, biases = attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3)
        # One head after another: products of more than three axes ask whether T is 1.
        heads = zip(
            *(
                F.linear(projection(sequence_BTD), weight, bias).chunk(self._config.num_heads, dim=2)
                for projection, weight, bias in zip(projections, weights, biases, strict=True)
            ),
            strict=True,
        )
        mixed = [_mixed(query, key, value, filled_BT.unsqueeze(1)) for query, key, value in heads]
        attended: Tensor = attention.out_proj(torch.cat(mixed, dim=2))
        return attended


@dataclass(frozen=True, kw_only=True)
class _Padded:
    """A sequence group, and which of its places the rows fill."""

    sequence: Tensor  # (B, T, D)
    lengths: Tensor  # (B,): of the group's first sequence feature; others may reach behind it

    @classmethod
    def of(cls, embedded: Mapping[str, Tensor], group: str) -> "_Padded":
        return cls(sequence=embedded[f"{group}.sequence"], lengths=embedded[f"{group}.sequence_length"])

    def cut(self, limit: int) -> "_Padded":
        """The first places of every row, and nothing behind them; all of them with limit 0."""
        if limit == 0:
            return self
        # Emptied, not cut off: of a size that is a symbol, a slice narrows the range or is compiled to read
        # behind the end of what is shorter, and an index to code that does not compile.
        read_T1 = self._places().unsqueeze(1) < limit
        return _Padded(
            sequence=torch.where(read_T1, self.sequence, 0.0), lengths=self.lengths.clamp(max=limit)
        )

    @property
    def filled(self) -> Tensor:
        """(B, T): whether the row has an element there."""
        return self._places() < self.lengths.unsqueeze(1)

    def attended(self, scores_BT: Tensor) -> Tensor:
        """The mean of the elements, weighed by the softmax of their scores: (B, D)."""
        scores = torch.where(self.filled, scores_BT, _UNFILLED)
        # Padding may reach behind the longest row, and a row without elements weighs no more than T.
        longest = self.lengths.max().clamp(min=1)
        weights_BT = torch.where(self._places() < longest, scores, float("-inf")).softmax(dim=1)
        return (weights_BT.unsqueeze(2) * self.sequence).sum(dim=1)

    def _places(self) -> Tensor:
        return torch.arange(self.sequence.shape[1], device=self.sequence.device)


def _mixed(query_BTE: Tensor, key_BTE: Tensor, value_BTE: Tensor, seen_B1T: Tensor) -> Tensor:
    """Of each place the mean of the values that it sees, weighed by its products with their keys."""
    scores_BTT = torch.bmm(query_BTE, key_BTE.transpose(1, 2)) / sqrt(query_BTE.shape[2])
    return torch.bmm(torch.where(seen_B1T, scores_BTT, _UNFILLED).softmax(dim=2), value_BTE)


def _only(scores_BT1: Tensor) -> Tensor:
    """The one score of each place, as a sum: squeezing makes inductor ask whether T is 1."""
    return scores_BT1.sum(dim=2)
