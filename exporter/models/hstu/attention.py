"""HSTU attention: SiLU of the scores instead of a softmax, over what each element may see.

B rows, N elements of all rows together, L longest row, H heads, A and V widths of a head's queries and
values, Q = H * A, E = H * V, W = 2 * E + 2 * Q: u, v, q and k of an element side by side.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.hstu.encoder import StuConfig
from exporter.models.blocks.jagged import Layout, pad_to, unpad
from exporter.models.hstu.kernels.attention import AttentionForm
from exporter.models.hstu.kernels.jagged_attention import jagged_attention
from exporter.models.hstu.sequence import EncoderSequence
from exporter.spec import AttentionKind


@dataclass(frozen=True, kw_only=True)
class Visibility:
    """Rule of the elements of its row that an element attends to."""

    prefix: int  # number of contextual elements, which see the whole row and are seen by all elements
    window: int  # number of elements that an element sees back; 0: all
    sla_k1: int  # semi-local attention: number of latest elements that are seen
    sla_k2: int  # semi-local attention: number of first elements that are seen

    @classmethod
    def of(cls, stu: StuConfig, prefix: int) -> "Visibility":
        return cls(prefix=prefix, window=stu.max_attn_len, sla_k1=stu.sla_k1, sla_k2=stu.sla_k2)

    def mask(self, sequence: EncoderSequence) -> Tensor:
        """Return booleans (1 or B, L, L): whether the element of the second axis sees that of the third."""
        history_B11 = sequence.history_lengths.view(-1, 1, 1)
        places_L = torch.arange(sequence.layout.longest, device=history_B11.device)
        if self.sla_k1 == 0 and self.sla_k2 == 0:
            return self._causal(places_L, history_B11)
        visible = self._semi_local(places_L).unsqueeze(0)
        if sequence.candidates is None:
            return visible
        # A candidate sees the whole history, and neither itself nor another candidate.
        is_candidate = places_L.view(1, -1, 1) >= history_B11
        return torch.where(is_candidate, places_L.view(1, 1, -1) < history_B11, visible)

    def _semi_local(self, places_L: Tensor) -> Tensor:
        rows, columns = places_L.unsqueeze(1), places_L.unsqueeze(0)
        is_near = columns > rows - self.sla_k1
        is_first = columns < max(self.sla_k2, self.prefix)
        return (columns <= rows) & (is_near | is_first)

    def _causal(self, places_L: Tensor, last_B11: Tensor) -> Tensor:
        itself = torch.eye(places_L.shape[0], dtype=torch.bool, device=places_L.device)
        if self.prefix > 0:  # the whole prefix is at place 0
            places_L = (places_L - self.prefix + 1).clamp(min=0)
            last_B11 = last_B11 - self.prefix + 1
        # All candidates are at one place behind the history, and do not see each other.
        rows = torch.minimum(places_L.view(1, -1, 1), last_B11)
        columns = torch.minimum(places_L.view(1, 1, -1), last_B11)
        visible = itself | (rows > columns)
        if self.window > 0:
            visible = visible & (rows - columns <= self.window)
        if self.prefix > 0:
            visible = visible | ((rows == 0) & (columns < last_B11))
        return visible


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Heads of a layer: their widths, and the formula from scores to weights."""

    count: int
    attention_dim: int  # A
    hidden_dim: int  # V
    alpha: float
    divisor: int

    @property
    def widths(self) -> tuple[int, int, int, int]:
        """Widths of u, v, q and k, in the order of their columns."""
        values, queries = self.count * self.hidden_dim, self.count * self.attention_dim
        return values, values, queries, queries

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        """Return the weights (..., L, L) of queries and keys (..., L, A): silu(alpha * q k^T) / divisor."""
        return F.silu(q @ k.transpose(-2, -1) * self.alpha) / self.divisor * mask


class Attention(nn.Module, ABC):
    """Attention of one layer; it has no weights, so that a pass may replace it by name."""

    reads_mask: ClassVar[bool]

    def __init__(self, heads: Heads, visibility: Visibility) -> None:
        super().__init__()
        self.heads = heads
        self.visibility = visibility

    @abstractmethod
    def forward(
        self, uvqk_NW: Tensor, offsets_B1: Tensor, candidates_B: Tensor | None, mask_BLL: Tensor | None
    ) -> Tensor:
        """Return the attention's output, (N, E).

        `candidates_B` is the number of candidates at the end of each row, None if there are none. The mask is
        `visibility.mask` of these rows, for attention that reads one.
        """


class PaddedAttention(Attention):
    """Attention over rows padded to the longest, with a mask."""

    reads_mask = True

    def forward(
        self, uvqk_NW: Tensor, offsets_B1: Tensor, candidates_B: Tensor | None, mask_BLL: Tensor | None
    ) -> Tensor:
        assert mask_BLL is not None
        # Padded before the split: padding a slice copies it first, and asks whether N is 1.
        layout = Layout.from_offsets(offsets_B1, total=uvqk_NW.shape[0])
        padded_BLW = pad_to(uvqk_NW, layout.offsets, mask_BLL.shape[-1])
        _, v_BLE, q_BLQ, k_BLQ = padded_BLW.split(self.heads.widths, dim=2)
        return unpad(self.attend(q_BLQ, k_BLQ, v_BLE, mask_BLL), layout)

    @abstractmethod
    def attend(self, q_BLQ: Tensor, k_BLQ: Tensor, v_BLE: Tensor, mask_BLL: Tensor) -> Tensor:
        """Return (B, L, H * V) from queries and keys (B, L, H * A) and values (B, L, H * V)."""


class AllHeads(PaddedAttention):
    """Attention of all heads in one product: B * H * L * L weights at a time."""

    def attend(self, q_BLQ: Tensor, k_BLQ: Tensor, v_BLE: Tensor, mask_BLL: Tensor) -> Tensor:
        if self.heads.count == 1:  # no axis of heads: inductor cannot order the strides around a size of 1
            return self.heads.weights(q_BLQ, k_BLQ, mask_BLL) @ v_BLE
        q_BHLA, k_BHLA, v_BHLV = (_by_head(x, self.heads.count) for x in (q_BLQ, k_BLQ, v_BLE))
        attended_BHLV = self.heads.weights(q_BHLA, k_BHLA, mask_BLL.unsqueeze(1)) @ v_BHLV
        return attended_BHLV.transpose(1, 2).flatten(2)


class HeadByHead(PaddedAttention):
    """Attention head by head: B * L * L weights at a time, for long histories in little memory."""

    def attend(self, q_BLQ: Tensor, k_BLQ: Tensor, v_BLE: Tensor, mask_BLL: Tensor) -> Tensor:
        by_head = zip(*(x.chunk(self.heads.count, dim=2) for x in (q_BLQ, k_BLQ, v_BLE)), strict=True)
        return torch.cat([self.heads.weights(q, k, mask_BLL) @ v for q, k, v in by_head], dim=2)


class JaggedAttention(Attention):
    """Attention by a kernel for CPUs over jagged rows: no padding, and no products that a mask undoes."""

    reads_mask = False

    def forward(
        self, uvqk_NW: Tensor, offsets_B1: Tensor, candidates_B: Tensor | None, mask_BLL: Tensor | None
    ) -> Tensor:
        _, v_NE, q_NQ, k_NQ = uvqk_NW.split(self.heads.widths, dim=1)
        return self.attend_tails(q_NQ, k_NQ, v_NE, offsets_B1, offsets_B1, candidates_B)

    def attend_tails(
        self,
        q_MQ: Tensor,
        k_NQ: Tensor,
        v_NE: Tensor,
        offsets_B1: Tensor,
        tails_B1: Tensor,
        candidates_B: Tensor | None,
    ) -> Tensor:
        """Return the output, (M, E), for the last elements of rows, which `tails_B1` divides into rows."""
        heads, sees = self.heads, self.visibility
        attended_ME: Tensor = jagged_attention(
            q_MQ,
            k_NQ,
            v_NE,
            offsets_B1,
            tails_B1,
            candidates_B,
            heads.count,
            heads.alpha,
            heads.divisor,
            sees.prefix,
            sees.window,
            sees.sla_k1,
            sees.sla_k2,
        )
        return attended_ME


class TritonAttention(Attention):
    """Attention by a Triton kernel over jagged rows: no padding, no mask, and memory for N elements."""

    reads_mask = False

    def forward(
        self, uvqk_NW: Tensor, offsets_B1: Tensor, candidates_B: Tensor | None, mask_BLL: Tensor | None
    ) -> Tensor:
        heads, sees = self.heads, self.visibility
        u, v, q, _ = heads.widths
        form = AttentionForm(
            v_column=u,
            q_column=u + v,
            k_column=u + v + q,
            heads=heads.count,
            attention_dim=heads.attention_dim,
            hidden_dim=heads.hidden_dim,
            alpha=heads.alpha,
            divisor=heads.divisor,
            prefix=sees.prefix,
            window=sees.window,
            sla_k1=sees.sla_k1,
            sla_k2=sees.sla_k2,
            tf32=torch.backends.cuda.matmul.allow_tf32,  # as in torch's own products
        )
        return form(uvqk_NW, offsets_B1, candidates_B)


ATTENTION: Mapping[AttentionKind, type[Attention]] = {
    AttentionKind.ALL_HEADS: AllHeads,
    AttentionKind.HEAD_BY_HEAD: HeadByHead,
    AttentionKind.TRITON: TritonAttention,
}


def _by_head(x_BLQ: Tensor, heads: int) -> Tensor:
    return x_BLQ.unflatten(2, (heads, -1)).transpose(1, 2)
