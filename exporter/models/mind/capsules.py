"""A history of events to a few interests: capsules by dynamic routing.

B rows, L places of the padded history, D width of an event, H width of an interest, K interests.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.match import CapsuleConfig, RoutingStart

_SEED = 0  # of the routing's start, where it is drawn
_SHORTEST = 1e-7  # norm


class Capsules(nn.Module):
    """Padded events to K interests per row, and which of them are valid."""

    _start_LK: Tensor

    def __init__(self, in_features: int, config: CapsuleConfig) -> None:
        super().__init__()
        self._config = config
        self.bilinear_matrix = nn.Parameter(torch.randn(in_features, config.high_dim))
        self.register_buffer("_start_LK", routing_start(config), persistent=False)

    def forward(self, events_BLD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L, D) and (B,) to interests (B, K, H), zeros where not valid, and to (B, K)."""
        config = self._config
        places_L = torch.arange(events_BLD.shape[1], device=lengths_B.device)
        is_event_BL1 = (places_L < lengths_B.clamp(max=config.max_seq_len).unsqueeze(1)).unsqueeze(2)
        is_valid_BK = valid_interests(lengths_B, config)
        # Zeros in the places behind a row's events, whatever the layers before have made of the padding.
        low_BLH = torch.where(is_event_BL1, events_BLD @ self.bilinear_matrix, 0)
        direction_BLH = F.normalize(low_BLH, dim=-1)
        start_LK = self._start_LK[places_L.clamp(max=config.max_seq_len - 1)]
        logits_BLK = start_LK.expand(low_BLH.shape[0], -1, -1)
        for _ in range(config.num_iters - 1):
            shares_BLK = self._shares(logits_BLK, is_valid_BK, is_event_BL1)
            interests_BKH = shares_BLK.transpose(1, 2) @ low_BLH
            logits_BLK = shares_BLK + direction_BLH @ interests_BKH.transpose(1, 2)
        shares_BLK = self._shares(logits_BLK, is_valid_BK, is_event_BL1)
        interests_BKH = _squashed(shares_BLK.transpose(1, 2) @ low_BLH, config.squash_pow)
        return torch.where(is_valid_BK.unsqueeze(2), interests_BKH, 0), is_valid_BK

    def _shares(self, logits_BLK: Tensor, is_valid_BK: Tensor, is_event_BL1: Tensor) -> Tensor:
        """How much of each event goes to each interest; all of it goes to valid ones."""
        scaled_BLK = logits_BLK * self._config.routing_logits_scale
        scaled_BLK = torch.where(is_valid_BK.unsqueeze(1), scaled_BLK, float("-inf"))
        return torch.where(is_event_BL1, scaled_BLK.softmax(dim=2), 0)


def valid_interests(lengths_B: Tensor, config: CapsuleConfig) -> Tensor:
    """As many as the logarithm of the length to base 2, rounded up; one at least, (B, K).

    Counted in whole numbers: the n-th is valid from 2**n + 1 events on, the first always.
    """
    interests_K = torch.arange(config.max_k, device=lengths_B.device)
    if config.const_caps_num:
        return (interests_K >= 0).expand(lengths_B.shape[0], -1)
    fewer_K = torch.bitwise_left_shift(torch.ones_like(interests_K), interests_K.clamp(max=62))
    return (lengths_B.unsqueeze(1) > fewer_K) | (interests_K == 0)


def routing_start(config: CapsuleConfig) -> Tensor:
    """The logits of the first round by place and interest, (max_seq_len, K).

    Where TorchEasyRec draws them, it draws anew at every call, so that one user gets other interests each
    time. Here they are drawn once and for all: every answer is one that the drawing could have given, and the
    same question has the same answer.
    """
    shape = config.max_seq_len, config.max_k
    if config.routing_start is RoutingStart.ZEROS:
        return torch.zeros(shape, device="cpu")
    generator = torch.Generator(device="cpu").manual_seed(_SEED)
    return torch.randn(shape, generator=generator, device="cpu") * config.routing_logits_stddev


def _squashed(x_BKH: Tensor, power: float) -> Tensor:
    """The same direction, and a length below 1 that grows with the length."""
    norm_BK1 = torch.linalg.vector_norm(x_BKH, dim=-1, keepdim=True).clamp(min=_SHORTEST)
    square_BK1 = norm_BK1.square()
    return (square_BK1 / (1 + square_BK1)) ** power / norm_BK1 * x_BKH
