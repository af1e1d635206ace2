"""Dynamic routing of a history's events into interest capsules (B2I routing of MIND, arXiv:1904.08030).

B rows, L places of the padded history, D width of an event, H width of an interest, K interests.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.families.match.mind import CapsuleConfig, RoutingStart

_SEED = 0  # of the random routing logits
_SHORTEST = 1e-7  # smallest norm of a capsule before it is squashed


class Capsules(nn.Module, ABC):
    """Module from padded events to K interests per row, and a mask of the valid ones."""

    def __init__(self, in_features: int, config: CapsuleConfig) -> None:
        super().__init__()
        self._config = config
        self.bilinear_matrix = nn.Parameter(torch.randn(in_features, config.high_dim))

    def forward(self, events_BLD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return interests (B, K, H), zeros where not valid, and the mask of valid ones (B, K)."""
        places_L = torch.arange(events_BLD.shape[1], device=lengths_B.device)
        read_B1 = lengths_B.clamp(max=self._config.max_seq_len).unsqueeze(1)
        is_event_BL1 = (places_L < read_B1).unsqueeze(2)
        is_valid_BK = valid_interests(lengths_B, self._config)
        # Places behind a row's events become zeros, because earlier layers may have changed the padding.
        low_BLH = torch.where(is_event_BL1, events_BLD @ self.bilinear_matrix, 0)
        interests_BKH = _squash(self.gather(low_BLH, is_event_BL1, is_valid_BK), self._config.squash_pow)
        return torch.where(is_valid_BK.unsqueeze(2), interests_BKH, 0), is_valid_BK

    def remarks(self) -> tuple[str, ...]:
        """Return what `ServedModule.remarks` returns."""
        return ()

    @abstractmethod
    def gather(self, low_BLH: Tensor, is_event_BL1: Tensor, is_valid_BK: Tensor) -> Tensor:
        """Return each interest as the sum of its shares in the events, (B, K, H)."""


class EvenCapsules(Capsules):
    """Routing that starts from zeros and stays there: all valid interests of a row are equal in every round.

    Each has an equal share of every event. The rounds are not computed, because rounding would make interests
    differ in the last digit, and every round would magnify the difference.
    """

    def gather(self, low_BLH: Tensor, is_event_BL1: Tensor, is_valid_BK: Tensor) -> Tensor:
        shared_BH = low_BLH.sum(1) / is_valid_BK.sum(1, keepdim=True)
        return shared_BH.unsqueeze(1).expand(-1, is_valid_BK.shape[1], -1)


class RandomCapsules(Capsules):
    """Routing that starts from random logits, which make the interests of a row differ.

    TorchEasyRec draws the logits anew at every call, so that a user has other interests each time. Here they
    are drawn once per place and interest: every output is one that TorchEasyRec could have given, and equal
    inputs have equal outputs.
    """

    _start: Tensor

    def __init__(self, in_features: int, config: CapsuleConfig) -> None:
        super().__init__(in_features, config)
        self.register_buffer("_start", draw_start(config), persistent=False)

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
            # bmm, because matmul asks whether a traced size is 1
            interests_BKH = torch.bmm(shares_BLK.transpose(1, 2), low_BLH)
            logits_BLK = shares_BLK + torch.bmm(direction_BLH, interests_BKH.transpose(1, 2))
            shares_BLK = self._shares(logits_BLK, is_event_BL1, is_valid_BK)
        return torch.bmm(shares_BLK.transpose(1, 2), low_BLH)

    def _shares(self, logits_BLK: Tensor, is_event_BL1: Tensor, is_valid_BK: Tensor) -> Tensor:
        """Return the share of each event that goes to each interest; invalid interests get none."""
        scaled_BLK = logits_BLK * self._config.routing_logits_scale
        scaled_BLK = torch.where(is_valid_BK.unsqueeze(1), scaled_BLK, float("-inf"))
        return torch.where(is_event_BL1, scaled_BLK.softmax(dim=2), 0)


def build_capsules(in_features: int, config: CapsuleConfig) -> Capsules:
    kind = EvenCapsules if config.routing_start is RoutingStart.ZEROS else RandomCapsules
    return kind(in_features, config)


def valid_interests(lengths_B: Tensor, config: CapsuleConfig) -> Tensor:
    """Return the mask of valid interests, (B, K): ceil(log2(length)) of them, and at least one.

    It is computed in whole numbers: interest n, counted from 0, is valid if there are more than 2**n events,
    and interest 0 always.
    """
    interests_K = torch.arange(config.max_k, device=lengths_B.device)
    if config.const_caps_num:
        return (interests_K >= 0).expand(lengths_B.shape[0], -1)
    fewer_K = torch.bitwise_left_shift(torch.ones_like(interests_K), interests_K.clamp(max=62))
    return (lengths_B.unsqueeze(1) > fewer_K) | (interests_K == 0)


def draw_start(config: CapsuleConfig) -> Tensor:
    """Return the logits before the first round, (max_seq_len, K); they are equal in every build."""
    generator = torch.Generator(device="cpu").manual_seed(_SEED)
    start_LK = torch.randn(config.max_seq_len, config.max_k, generator=generator, device="cpu")
    return start_LK * config.routing_logits_stddev


def _squash(x_BKH: Tensor, power: float) -> Tensor:
    """Scale each vector to a length below 1 that grows with its length."""
    norm_BK1 = torch.linalg.vector_norm(x_BKH, dim=-1, keepdim=True).clamp(min=_SHORTEST)
    square_BK1 = norm_BK1.square()
    return (square_BK1 / (1 + square_BK1)) ** power / norm_BK1 * x_BKH
