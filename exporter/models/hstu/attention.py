"""HSTU attention: SiLU of the scores instead of a softmax, over what each element may see.

B rows, L longest row, H heads, A and V widths of a head's queries and values, Q = H * A, E = H * V.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from exporter.config.hstu import StuConfig
from exporter.models.hstu.sequence import EncoderSequence


@dataclass(frozen=True, kw_only=True)
class Visibility:
    """Which elements of its row an element attends to."""

    prefix: int  # contextual elements: they see the whole row, and everything sees them
    window: int  # how far back an element sees; 0: to the start
    sla_k1: int  # semi-local attention: how many of the latest
    sla_k2: int  # and how many of the first elements are seen

    @classmethod
    def of(cls, stu: StuConfig, prefix: int) -> "Visibility":
        return cls(prefix=prefix, window=stu.max_attn_len, sla_k1=stu.sla_k1, sla_k2=stu.sla_k2)

    def mask(self, sequence: EncoderSequence) -> Tensor:
        """Booleans (1 or B, L, L): may the element of this row attend to that of this column?"""
        history_B11 = sequence.history_lengths.view(-1, 1, 1)
        places_L = torch.arange(sequence.layout.longest, device=history_B11.device)
        if self.sla_k1 == 0 and self.sla_k2 == 0:
            return self._causal(places_L, history_B11)
        visible = self._semi_local(places_L).unsqueeze(0)
        if sequence.candidates is None:
            return visible
        # A candidate sees all of the history, and neither itself nor another candidate.
        is_candidate = places_L.view(1, -1, 1) >= history_B11
        return torch.where(is_candidate, places_L.view(1, 1, -1) < history_B11, visible)

    def _semi_local(self, places_L: Tensor) -> Tensor:
        rows, columns = places_L.unsqueeze(1), places_L.unsqueeze(0)
        is_near = columns > rows - self.sla_k1
        is_first = columns < max(self.sla_k2, self.prefix)
        return (columns <= rows) & (is_near | is_first)

    def _causal(self, places_L: Tensor, last_B11: Tensor) -> Tensor:
        itself = torch.eye(places_L.shape[0], dtype=torch.bool, device=places_L.device)
        if self.prefix > 0:  # all of the prefix is at one place, 0
            places_L = (places_L - self.prefix + 1).clamp(min=0)
            last_B11 = last_B11 - self.prefix + 1
        # All candidates are at one place as well, behind the history, and do not see each other.
        rows = torch.minimum(places_L.view(1, -1, 1), last_B11)
        columns = torch.minimum(places_L.view(1, 1, -1), last_B11)
        visible = itself | (rows > columns)
        if self.window > 0:
            visible = visible & (rows - columns <= self.window)
        if self.prefix > 0:
            visible = visible | ((rows == 0) & (columns < last_B11))
        return visible


def attend(
    q_BLQ: Tensor, k_BLQ: Tensor, v_BLE: Tensor, mask_BLL: Tensor, *, heads: int, alpha: float, divisor: int
) -> Tensor:
    """Queries and keys (B, L, H * A), values (B, L, H * V), to (B, L, H * V)."""
    if heads == 1:  # without an axis of heads: inductor cannot order the strides around a size of 1
        return _weights(q_BLQ, k_BLQ, alpha, divisor) * mask_BLL @ v_BLE
    q_BHLA, k_BHLA, v_BHLV = (_by_head(x, heads) for x in (q_BLQ, k_BLQ, v_BLE))
    attended_BHLV = _weights(q_BHLA, k_BHLA, alpha, divisor) * mask_BLL.unsqueeze(1) @ v_BHLV
    return attended_BHLV.transpose(1, 2).flatten(2)


def _weights(q: Tensor, k: Tensor, alpha: float, divisor: int) -> Tensor:
    return F.silu(q @ k.transpose(-2, -1) * alpha) / divisor


def _by_head(x_BLQ: Tensor, heads: int) -> Tensor:
    return x_BLQ.unflatten(2, (heads, -1)).transpose(1, 2)
