"""Sequential transduction units: one layer, and a stack that may shorten the sequence half way.

B rows, N elements of all rows together, L longest row, D width, H heads, V width of their values, E = H * V.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.hstu import HstuConfig, StuConfig
from exporter.models.hstu.attention import AllHeads, Scores, Visibility
from exporter.models.hstu.sequence import EncoderSequence
from exporter.models.jagged import Layout, as_size, pad, unpad

_NORM_EPS = 1e-6


class StuLayer(nn.Module):
    """Norm, one projection to u, v, q and k, attention, norm, gate by u, projection back, residual."""

    def __init__(self, config: StuConfig, *, divisor: int, dropout: float) -> None:
        super().__init__()
        self._config = config
        alpha = config.attn_alpha or config.attention_dim**-0.5
        self._attention = AllHeads(Scores(heads=config.num_heads, alpha=alpha, divisor=divisor))
        self._dropout = dropout
        heads, inner = config.num_heads, config.num_heads * config.hidden_dim
        self._widths = (inner, inner, heads * config.attention_dim, heads * config.attention_dim)
        normed = heads if config.use_group_norm else inner
        self._uvqk_weight = nn.Parameter(torch.empty(config.embedding_dim, sum(self._widths)))
        self._uvqk_beta = nn.Parameter(torch.zeros(sum(self._widths)))
        self._input_norm_weight = nn.Parameter(torch.ones(config.embedding_dim))
        self._input_norm_bias = nn.Parameter(torch.zeros(config.embedding_dim))
        self._output_weight = nn.Parameter(torch.empty(3 * inner, config.embedding_dim))
        self._output_norm_weight = nn.Parameter(torch.ones(normed))
        self._output_norm_bias = nn.Parameter(torch.zeros(normed))
        nn.init.xavier_uniform_(self._uvqk_weight)
        nn.init.xavier_uniform_(self._output_weight)

    def forward(self, x_ND: Tensor, layout: Layout, mask_BLL: Tensor) -> Tensor:
        normed_ND = F.layer_norm(
            x_ND, x_ND.shape[1:], self._input_norm_weight, self._input_norm_bias, _NORM_EPS
        )
        uvqk = torch.addmm(self._uvqk_beta, normed_ND, self._uvqk_weight)
        u_NE = F.silu(uvqk[:, : self._widths[0]])
        # Padded before it is split: padding a slice copies it first, and asks on the way if N is 1.
        _, v, q, k = pad(uvqk, layout).split(self._widths, dim=2)
        attended_NE = unpad(self._attention(q, k, v, mask_BLL), layout)
        y = torch.cat([u_NE, attended_NE, u_NE * self._normed(attended_NE)], dim=1)
        y = F.dropout(y, self._dropout, self.training)
        return torch.addmm(x_ND, y, self._output_weight)

    def _normed(self, x_NE: Tensor) -> Tensor:
        weight, bias = self._output_norm_weight, self._output_norm_bias
        if not self._config.use_group_norm:
            return F.layer_norm(x_NE, x_NE.shape[1:], weight, bias, _NORM_EPS)
        # One group per head. F.group_norm asks whether the batch is a single value, which no trace can say.
        x_NHV = x_NE.unflatten(1, (self._config.num_heads, self._config.hidden_dim))
        normed_NHV = F.layer_norm(x_NHV, x_NHV.shape[2:], eps=_NORM_EPS)
        return (normed_NHV * weight.unsqueeze(1) + bias.unsqueeze(1)).flatten(1)


class StuStack(nn.Module):
    """Layers one after another; from `attn_truncation_split_layer` on only the tail of each history."""

    def __init__(self, config: HstuConfig, *, prefix: int, max_seq_len: int, dropout: float) -> None:
        super().__init__()
        stu = config.stu
        self._prefix = stu.contextual_seq_len if stu.contextual_seq_len >= 0 else prefix
        self._visibility = Visibility.of(stu, self._prefix)
        self._split, self._tail = config.attn_truncation_split_layer, config.attn_truncation_tail_len
        divisor = stu.scaling_seqlen if stu.scaling_seqlen >= 0 else max_seq_len
        self._stu_layers = nn.ModuleList(
            StuLayer(stu, divisor=divisor, dropout=dropout) for _ in range(config.num_layers)
        )

    def forward(self, sequence: EncoderSequence) -> EncoderSequence:
        """The encoded sequence, or what truncation leaves of it."""
        mask_BLL = self._visibility.mask(sequence)
        for number, layer in enumerate(self._stu_layers):
            if self._tail and number == self._split:
                sequence = truncated(sequence, self._prefix, self._tail)
                mask_BLL = self._visibility.mask(sequence)
            sequence = replace(sequence, values=layer(sequence.values, sequence.layout, mask_BLL))
        return sequence


def truncated(sequence: EncoderSequence, prefix: int, tail: int) -> EncoderSequence:
    """Rows keep their first `prefix` elements, the last `tail` of their events, and all candidates."""
    whole = sequence.layout
    dropped_B = (sequence.history_lengths - prefix - tail).clamp(min=0)
    lengths_B = whole.lengths - dropped_B
    short = Layout.of(lengths_B, total=as_size(lengths_B.sum()))
    places = torch.where(short.places < prefix, short.places, short.places + dropped_B[short.rows])
    kept = (whole.offsets[short.rows] + places).clamp(max=whole.total - 1)
    return replace(sequence, values=sequence.values[kept], timestamps=sequence.timestamps[kept], layout=short)
