"""Sequential transduction units (STU, arXiv:2402.17152): one layer, and a stack that may truncate rows.

B rows, N elements of all rows together, L longest row, D width, H heads, V width of their values, E = H * V,
W width of u, v, q and k side by side.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.hstu.encoder import HstuConfig, StuConfig
from exporter.models.blocks.jagged import Layout, as_size
from exporter.models.hstu.attention import AllHeads, Attention, Heads, JaggedAttention, Visibility
from exporter.models.hstu.gated_output import NORM_EPS, GatedOutput
from exporter.models.hstu.sequence import EncodedTail, EncoderSequence, Tail


class StuLayer(nn.Module):
    """One layer: norm, projection to u, v, q and k, attention, norm, gate by u, projection back, residual."""

    def __init__(self, config: StuConfig, visibility: Visibility, *, divisor: int, dropout: float) -> None:
        super().__init__()
        heads = Heads(
            count=config.num_heads,
            attention_dim=config.attention_dim,
            hidden_dim=config.hidden_dim,
            alpha=config.attn_alpha or config.attention_dim**-0.5,
            divisor=divisor,
        )
        self._attention: Attention = AllHeads(heads, visibility)
        inner, width = heads.widths[0], sum(heads.widths)
        self._widths = heads.widths
        norm_heads = config.num_heads if config.use_group_norm else 0
        self._gated_output = GatedOutput(norm_heads=norm_heads, dropout=dropout)
        self._uvqk_weight = nn.Parameter(torch.empty(config.embedding_dim, width))
        self._uvqk_beta = nn.Parameter(torch.zeros(width))
        self._input_norm_weight = nn.Parameter(torch.ones(config.embedding_dim))
        self._input_norm_bias = nn.Parameter(torch.zeros(config.embedding_dim))
        self._output_weight = nn.Parameter(torch.empty(3 * inner, config.embedding_dim))
        self._output_norm_weight = nn.Parameter(torch.ones(norm_heads or inner))
        self._output_norm_bias = nn.Parameter(torch.zeros(norm_heads or inner))
        nn.init.xavier_uniform_(self._uvqk_weight)
        nn.init.xavier_uniform_(self._output_weight)

    @property
    def reads_mask(self) -> bool:
        """Return whether the layer's attention reads a mask."""
        return self._attention.reads_mask

    @property
    def is_by_tail(self) -> bool:
        """Return whether the layer can compute the last elements of rows alone."""
        return isinstance(self._attention, JaggedAttention)

    def forward(self, sequence: EncoderSequence, mask_BLL: Tensor | None, tail: Tail | None = None) -> Tensor:
        """Return the layer's output for all elements, (N, D), or for those of `tail`, (M, D)."""
        x_ND = sequence.values
        normed_ND = F.layer_norm(
            x_ND, x_ND.shape[1:], self._input_norm_weight, self._input_norm_bias, NORM_EPS
        )
        candidates_B = None if sequence.candidates is None else sequence.candidates.lengths
        offsets_B1 = sequence.layout.offsets
        if tail is None:
            uvqk_NW = torch.addmm(self._uvqk_beta, normed_ND, self._uvqk_weight)
            attended_NE = self._attention(uvqk_NW, offsets_B1, candidates_B, mask_BLL)
            return self._output(x_ND, uvqk_NW, attended_NE)
        # All elements are seen, so all have a key and a value; what the tail alone needs is projected for it.
        normed_MD = tail.select(normed_ND)
        weights_u_v_q_k = self._uvqk_weight.split(self._widths, dim=1)
        betas_u_v_q_k = self._uvqk_beta.split(self._widths)
        u_ME, v_NE, q_MQ, k_NQ = (
            torch.addmm(beta, normed, weight)
            for beta, normed, weight in zip(
                betas_u_v_q_k, (normed_MD, normed_ND, normed_MD, normed_ND), weights_u_v_q_k, strict=True
            )
        )
        assert isinstance(self._attention, JaggedAttention)
        attended_ME = self._attention.attend_tails(
            q_MQ, k_NQ, v_NE, offsets_B1, tail.layout.offsets, candidates_B
        )
        return self._output(tail.select(x_ND), u_ME, attended_ME)

    def _output(self, x_ND: Tensor, uvqk_NW: Tensor, attended_NE: Tensor) -> Tensor:
        layer_ND: Tensor = self._gated_output(
            x_ND,
            uvqk_NW,
            attended_NE,
            self._output_norm_weight,
            self._output_norm_bias,
            self._output_weight,
        )
        return layer_ND


class StuStack(nn.Module):
    """STU layers; from `attn_truncation_split_layer` on they see only the tail of each history."""

    def __init__(self, config: HstuConfig, *, prefix: int, max_seq_len: int, dropout: float) -> None:
        super().__init__()
        stu = config.stu
        self._prefix = stu.contextual_seq_len if stu.contextual_seq_len >= 0 else prefix
        self._visibility = Visibility.of(stu, self._prefix)
        self._split, self._tail = config.attn_truncation_split_layer, config.attn_truncation_tail_len
        divisor = stu.scaling_seqlen if stu.scaling_seqlen >= 0 else max_seq_len
        self._stu_layers = nn.ModuleList(
            StuLayer(stu, self._visibility, divisor=divisor, dropout=dropout)
            for _ in range(config.num_layers)
        )

    def forward(self, sequence: EncoderSequence) -> EncodedTail:
        """Return the encoded tail of the sequence, which is truncated if the config says so."""
        mask_BLL, last = self._mask(sequence), len(self._stu_layers) - 1
        for number, layer in enumerate(self._stu_layers):
            if self._tail and number == self._split:
                sequence = truncate_sequence(sequence, self._prefix, self._tail)
                mask_BLL = self._mask(sequence)
            if number == last and layer.is_by_tail:
                tail = sequence.tail
                return _encoded(sequence, tail, layer(sequence, mask_BLL, tail))
            sequence = replace(sequence, values=layer(sequence, mask_BLL))
        tail = sequence.tail
        return _encoded(sequence, tail, tail.select(sequence.values))

    def _mask(self, sequence: EncoderSequence) -> Tensor | None:
        """Return one mask for all layers, or None if no layer reads it."""
        wanted = any(layer.reads_mask for layer in self._stu_layers)
        return self._visibility.mask(sequence) if wanted else None


def _encoded(sequence: EncoderSequence, tail: Tail, values_MD: Tensor) -> EncodedTail:
    timestamps_M1 = tail.select(sequence.timestamps.unsqueeze(-1))
    return EncodedTail(
        values=values_MD, timestamps=timestamps_M1.squeeze(-1), row_lengths=sequence.layout.lengths
    )


def truncate_sequence(sequence: EncoderSequence, prefix: int, tail: int) -> EncoderSequence:
    """Keep the first `prefix` elements of each row, the last `tail` of its events, and all candidates."""
    whole = sequence.layout
    dropped_B = (sequence.history_lengths - prefix - tail).clamp(min=0)
    lengths_B = whole.lengths - dropped_B
    short = Layout.of(lengths_B, total=as_size(lengths_B.sum()))
    places = torch.where(short.places < prefix, short.places, short.places + dropped_B[short.rows])
    kept = (whole.offsets[short.rows] + places).clamp(max=whole.total - 1)
    return replace(sequence, values=sequence.values[kept], timestamps=sequence.timestamps[kept], layout=short)
