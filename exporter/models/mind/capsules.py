"""A history of events to a few interests: capsules by dynamic routing.

B rows, L places of the padded history, D width of an event, H width of an interest, K interests.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.families.mind import CapsuleConfig, RoutingStart

_SEED = 0  # of the routing's start, where it is drawn
_SHORTEST = 1e-7  # norm


class Capsules(nn.Module, ABC):
    """Padded events to K interests per row, and which of them are valid."""

    def __init__(self, in_features: int, config: CapsuleConfig) -> None:
        super().__init__()
        self._config = config
        self.bilinear_matrix = nn.Parameter(torch.randn(in_features, config.high_dim))

    def forward(self, events_BLD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L, D) and (B,) to interests (B, K, H), zeros where not valid, and to (B, K)."""
        places_L = torch.arange(events_BLD.shape[1], device=lengths_B.device)
        read_B1 = lengths_B.clamp(max=self._config.max_seq_len).unsqueeze(1)
        is_event_BL1 = (places_L < read_B1).unsqueeze(2)
        is_valid_BK = valid_interests(lengths_B, self._config)
        # Zeros in the places behind a row's events, whatever the layers before have made of the padding.
        low_BLH = torch.where(is_event_BL1, events_BLD @ self.bilinear_matrix, 0)
        interests_BKH = _squashed(self.gather(low_BLH, is_event_BL1, is_valid_BK), self._config.squash_pow)
        return torch.where(is_valid_BK.unsqueeze(2), interests_BKH, 0), is_valid_BK

    def remarks(self) -> tuple[str, ...]:
        """As of `ServedModule`."""
        return ()

    @abstractmethod
    def gather(self, low_BLH: Tensor, is_event_BL1: Tensor, is_valid_BK: Tensor) -> Tensor:
        """The sum of each interest's shares in the events, (B, K, H)."""


class EvenCapsules(Capsules):
    """Routing that starts from zeros, where it stays: valid interests are alike, in every round.

    Each has an equal share of every event. It is not computed round by round, because rounding would make
    interests differ in the last digit, and every round would magnify that.
    """

    def gather(self, low_BLH: Tensor, is_event_BL1: Tensor, is_valid_BK: Tensor) -> Tensor:
        shared_BH = low_BLH.sum(1) / is_valid_BK.sum(1, keepdim=True)
        return shared_BH.unsqueeze(1).expand(-1, is_valid_BK.shape[1], -1)


class DrawnCapsules(Capsules):
    """Routing that starts from random numbers, by which the interests of a row come to differ.

    TorchEasyRec draws them anew at every call, so that a user has other interests each time. Here they are
    drawn once, for each place and interest: every answer is one that the drawing could have given, and the
    same question has the same answer.
    """

    _start: Tensor

    def __init__(self, in_features: int, config: CapsuleConfig) -> None:
        super().__init__(in_features, config)
        self.register_buffer("_start", drawn_start(config), persistent=False)

    def remarks(self) -> tuple[str, ...]:
        return (
            "routing_init_method is normal: routing starts from numbers drawn once, with seed "
            f"{_SEED}, where TorchEasyRec draws others at every call",
        )

    def gather(self, low_BLH: Tensor, is_event_BL1: Tensor, is_valid_BK: Tensor) -> Tensor:
        places_L = torch.arange(low_BLH.shape[1], device=low_BLH.device)
        logits_BLK = self._start[places_L.clamp(max=self._config.max_seq_len - 1)].unsqueeze(0)
        direction_BLH = F.normalize(low_BLH, dim=-1)
        shares_BLK = self._shares(logits_BLK, is_event_BL1, is_valid_BK)
        for _ in range(self._config.num_iters - 1):
            # bmm, because matmul asks a traced size whether it is 1
            interests_BKH = torch.bmm(shares_BLK.transpose(1, 2), low_BLH)
            logits_BLK = shares_BLK + torch.bmm(direction_BLH, interests_BKH.transpose(1, 2))
            shares_BLK = self._shares(logits_BLK, is_event_BL1, is_valid_BK)
        return torch.bmm(shares_BLK.transpose(1, 2), low_BLH)

    def _shares(self, logits_BLK: Tensor, is_event_BL1: Tensor, is_valid_BK: Tensor) -> Tensor:
        """How much of each event goes to each interest; all of it goes to valid ones."""
        scaled_BLK = logits_BLK * self._config.routing_logits_scale
        scaled_BLK = torch.where(is_valid_BK.unsqueeze(1), scaled_BLK, float("-inf"))
        return torch.where(is_event_BL1, scaled_BLK.softmax(dim=2), 0)


def build_capsules(in_features: int, config: CapsuleConfig) -> Capsules:
    kind = EvenCapsules if config.routing_start is RoutingStart.ZEROS else DrawnCapsules
    return kind(in_features, config)


def valid_interests(lengths_B: Tensor, config: CapsuleConfig) -> Tensor:
    """As many as the logarithm of the length to base 2, rounded up; one at least, (B, K).

    Counted in whole numbers: the n-th, from 0, is valid where there are more than 2**n events, the first
    always.
    """
    interests_K = torch.arange(config.max_k, device=lengths_B.device)
    if config.const_caps_num:
        return (interests_K >= 0).expand(lengths_B.shape[0], -1)
    fewer_K = torch.bitwise_left_shift(torch.ones_like(interests_K), interests_K.clamp(max=62))
    return (lengths_B.unsqueeze(1) > fewer_K) | (interests_K == 0)


def drawn_start(config: CapsuleConfig) -> Tensor:
    """The logits before the first round, by place and interest, (max_seq_len, K): the same in every build."""
    generator = torch.Generator(device="cpu").manual_seed(_SEED)
    start_LK = torch.randn(config.max_seq_len, config.max_k, generator=generator, device="cpu")
    return start_LK * config.routing_logits_stddev


def _squashed(x_BKH: Tensor, power: float) -> Tensor:
    """The same direction, and a length below 1 that grows with the length."""
    norm_BK1 = torch.linalg.vector_norm(x_BKH, dim=-1, keepdim=True).clamp(min=_SHORTEST)
    square_BK1 = norm_BK1.square()
    return (square_BK1 / (1 + square_BK1)) ** power / norm_BK1 * x_BKH
