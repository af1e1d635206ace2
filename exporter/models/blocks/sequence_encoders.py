"""Sequence encoders: one vector per row from a padded sequence and, for most encoders, a query.

B rows, T places of the longest row, D width of the sequence, E of a head, W of all heads. The formulas are
those of TorchEasyRec's modules of the same names.
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

# Score of a place that a row does not fill. A row without elements weighs all places equally.
_UNFILLED = float(-(2**31) + 1)


def build_encoder(config: SequenceEncoderConfig, *, query_width: int, sequence_width: int) -> nn.Module:
    """Build an encoder of a DEEP group, from the embedded groups, by key, to a vector (B, `encoder_width`).

    It reads `<group>.sequence` (B, T, D), padded with zeros, `<group>.sequence_length` (B,) and, if it has a
    query, `<group>.query` (B, D or fewer).
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
    """DIN attention (Zhou et al. 2018, arXiv:1706.06978): a mean weighed by an MLP of element and query."""

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
        self._query_padding = sequence_width - query_width
        self._limit = max_seq_length
        self.mlp = Mlp(4 * sequence_width, attn_mlp, padded=True)
        self.linear = nn.Linear(self.mlp.out_features, 1)

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        padded = _Padded.of(embedded, self._group).cut(self._limit)
        sequence = padded.sequence
        query = F.pad(embedded[f"{self._group}.query"], (0, self._query_padding))
        query = query.unsqueeze(1).expand_as(sequence)
        beside = torch.cat([query, sequence, query - sequence, query * sequence], dim=2)
        return padded.weighed_mean(_drop_last_axis(self.linear(self.mlp(beside))))


class SimpleAttention(nn.Module):
    """Mean of the sequence, weighed by the softmax of each element's product with the query."""

    def __init__(self, config: SimpleAttentionConfig) -> None:
        super().__init__()
        self._config = config

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        padded = _Padded.of(embedded, self._config.group).cut(self._config.max_seq_length)
        query = embedded[f"{self._config.group}.query"].unsqueeze(1)
        return padded.weighed_mean((padded.sequence * query).sum(dim=2))


class PoolingEncoder(nn.Module):
    """Sum or mean of the sequence's elements."""

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
    """Multi-window DIN: the mean of the scored elements of every window (no softmax), then the query."""

    def __init__(self, config: MultiWindowDinEncoderConfig, *, query_width: int, sequence_width: int) -> None:
        super().__init__()
        self._group = config.group
        self._query_padding = sequence_width - query_width
        self._bounds = tuple(accumulate(config.windows, initial=0))
        self.register_buffer("windows_len", torch.tensor(config.windows))
        self.register_buffer("cumsum_windows_len", torch.tensor(self._bounds[:-1]))
        self.mlp = Mlp(3 * sequence_width, config.attn_mlp, padded=True)
        self.linear = nn.Linear(self.mlp.out_features, 1)
        self.active = nn.PReLU()

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        padded = _Padded.of(embedded, self._group)
        sequence = padded.sequence
        query = F.pad(embedded[f"{self._group}.query"], (0, self._query_padding))
        queries = query.unsqueeze(1).expand_as(sequence)
        beside = torch.cat([sequence, queries * sequence, queries], dim=2)
        scores = self.active(_drop_last_axis(self.linear(self.mlp(beside)))) * padded.filled
        # Padded with zeros, so that there are as many places as the windows have, whatever T is.
        places = F.pad(scores.unsqueeze(2) * sequence, (0, 0, 0, self._bounds[-1]))
        sums = [places[:, start:end].sum(dim=1) for start, end in pairwise(self._bounds)]
        means = torch.stack(sums, dim=1) / self._counts(padded.lengths).unsqueeze(2)
        return torch.cat([means.flatten(1), query], dim=1)

    def _counts(self, lengths_B: Tensor) -> Tensor:
        """Return the number of elements of each row in each window, at least 1: (B, windows)."""
        behind = lengths_B.unsqueeze(1) - self.get_buffer("cumsum_windows_len")
        return torch.minimum(behind, self.get_buffer("windows_len")).clamp(min=1)


class SelfAttentionEncoder(nn.Module):
    """Mean of a multi-head self-attention over each row.

    The sum of a row that is cut to `max_seq_length` is still divided by its whole length, as in TorchEasyRec.
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
        attended = self._attend(padded.sequence, padded.filled)
        return (attended * padded.filled.unsqueeze(2)).sum(dim=1) / whole_B1

    def _attend(self, sequence_BTD: Tensor, filled_BT: Tensor) -> Tensor:
        """Return the attention's output, (B, T, W); it is meaningless at places that a row does not fill."""
        attention = self._multihead_attn
        projections = (self._query, self._key, self._value)
        weights, biases = attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3)
        # Heads are computed one by one: products of more than three axes ask whether T is 1.
        heads = zip(
            *(
                F.linear(projection(sequence_BTD), weight, bias).chunk(self._config.num_heads, dim=2)
                for projection, weight, bias in zip(projections, weights, biases, strict=True)
            ),
            strict=True,
        )
        mixed = [_attend_head(query, key, value, filled_BT.unsqueeze(1)) for query, key, value in heads]
        attended: Tensor = attention.out_proj(torch.cat(mixed, dim=2))
        return attended


@dataclass(frozen=True, kw_only=True)
class _Padded:
    """A padded sequence group and the lengths of its rows."""

    sequence: Tensor  # (B, T, D)
    lengths: Tensor  # (B,): of the group's first sequence feature; other features may be longer

    @classmethod
    def of(cls, embedded: Mapping[str, Tensor], group: str) -> "_Padded":
        return cls(sequence=embedded[f"{group}.sequence"], lengths=embedded[f"{group}.sequence_length"])

    def cut(self, limit: int) -> "_Padded":
        """Keep the first `limit` places of every row, with zeros behind them; 0 keeps all places."""
        if limit == 0:
            return self
        # Zeroed, not sliced: a slice of a symbolic size narrows its range, or is compiled to read past the
        # end of shorter sequences; an index gives code that does not compile.
        read_T1 = self._places().unsqueeze(1) < limit
        return _Padded(
            sequence=torch.where(read_T1, self.sequence, 0.0), lengths=self.lengths.clamp(max=limit)
        )

    @property
    def filled(self) -> Tensor:
        """Return whether each row has an element at each place, (B, T)."""
        return self._places() < self.lengths.unsqueeze(1)

    def weighed_mean(self, scores_BT: Tensor) -> Tensor:
        """Return the mean of the elements, weighed by the softmax of their scores: (B, D)."""
        scores = torch.where(self.filled, scores_BT, _UNFILLED)
        # T may exceed the longest row; places behind the longest row have no weight, even for empty rows.
        longest = self.lengths.max().clamp(min=1)
        weights_BT = torch.where(self._places() < longest, scores, float("-inf")).softmax(dim=1)
        return (weights_BT.unsqueeze(2) * self.sequence).sum(dim=1)

    def _places(self) -> Tensor:
        return torch.arange(self.sequence.shape[1], device=self.sequence.device)


def _attend_head(query_BTE: Tensor, key_BTE: Tensor, value_BTE: Tensor, seen_B1T: Tensor) -> Tensor:
    """Return scaled dot-product attention over the places that are filled: (B, T, E)."""
    scores_BTT = torch.bmm(query_BTE, key_BTE.transpose(1, 2)) / sqrt(query_BTE.shape[2])
    return torch.bmm(torch.where(seen_B1T, scores_BTT, _UNFILLED).softmax(dim=2), value_BTE)


def _drop_last_axis(scores_BT1: Tensor) -> Tensor:
    """Remove the last axis by a sum: squeezing it would make inductor ask whether T is 1."""
    return scores_BT1.sum(dim=2)
