"""Positional encoder: adds embeddings of each element's position in its row and of its age.

B rows, P elements of all rows together, D width.
"""

from math import sqrt

import torch
from torch import Tensor, nn

from exporter.config.hstu.encoder import PositionalEncoderConfig
from exporter.models.blocks.jagged import last
from exporter.models.hstu.kernels.position import encode_positions
from exporter.models.hstu.sequence import EncoderSequence


class PositionalEncoder(nn.Module):
    """Sequence with an embedding of the position added and, with time encoding, one of the age."""

    def __init__(self, config: PositionalEncoderConfig, *, width: int, prefix: int) -> None:
        super().__init__()
        self._encoding = PositionEncoding(config, scale=width**0.5, prefix=prefix)
        positions = config.num_position_buckets
        self._position_embeddings_weight = _uniform(positions, positions, width)
        self._timestamp_embeddings_weight: nn.Parameter | None = None
        if config.use_time_encoding:
            buckets = config.num_time_buckets
            self._timestamp_embeddings_weight = _uniform(buckets + 1, buckets, width)

    def forward(self, sequence: EncoderSequence, query_time_B1: Tensor | None) -> Tensor:
        encoded_PD: Tensor = self._encoding(
            sequence, query_time_B1, self._position_embeddings_weight, self._timestamp_embeddings_weight
        )
        return encoded_PD


class PositionEncoding(nn.Module):
    """Arithmetic of the positional encoder; the module has no weights, so that a kernel can replace it."""

    def __init__(self, config: PositionalEncoderConfig, *, scale: float, prefix: int) -> None:
        super().__init__()
        self.config = config
        self.scale = scale
        self.prefix = prefix

    def forward(
        self,
        sequence: EncoderSequence,
        query_time_B1: Tensor | None,
        position_weight: Tensor,
        time_weight: Tensor | None,
    ) -> Tensor:
        """Return the scaled values plus the weights' rows for each element's position and age, (P, D)."""
        values_PD, layout = sequence.values * self.scale, sequence.layout
        history_P = sequence.history_lengths[layout.rows]
        highest = self.config.num_position_buckets - 1
        if time_weight is None:  # all candidates are at one place, behind the history
            places_P = torch.minimum(layout.places, history_P).clamp(max=highest)
            return values_PD + position_weight[places_P]
        # Events are counted from the end of the history, the prefix from its start.
        from_end_P = (history_P - layout.places).clamp(min=0) + self.prefix
        positions_P = torch.where(layout.places < self.prefix, layout.places, from_end_P.clamp(max=highest))
        anchor_B1 = query_time_B1
        if anchor_B1 is None:
            anchor_B1 = last(sequence.timestamps.unsqueeze(-1), layout)
        ages_P = anchor_B1.flatten()[layout.rows] - sequence.timestamps
        return values_PD + (time_weight[self._time_buckets(ages_P)] + position_weight[positions_P])

    def _time_buckets(self, ages_P: Tensor) -> Tensor:
        """Return the bucket of each age, in TorchEasyRec's order of operations: another moves the edges."""
        count = self.config.num_time_buckets
        steps = ages_P.clamp(min=1e-6) / self.config.time_bucket_increments
        spread = torch.log(steps) if self.config.time_bucket_fn == "log" else torch.sqrt(steps)
        return ((spread / count).clamp(min=0, max=1) * count).int()


class TritonPositionEncoding(PositionEncoding):
    """PositionEncoding by a Triton kernel, which finds the row of an element itself."""

    def forward(
        self,
        sequence: EncoderSequence,
        query_time_B1: Tensor | None,
        position_weight: Tensor,
        time_weight: Tensor | None,
    ) -> Tensor:
        candidates = sequence.candidates
        encoded_PD: Tensor = encode_positions(
            sequence.values,
            sequence.layout.offsets,
            None if candidates is None else candidates.lengths,
            position_weight,
            self.scale,
            self.prefix,
            timestamps_P=sequence.timestamps,
            query_time_B=None if query_time_B1 is None else query_time_B1.flatten(),
            time_weight=time_weight,
            increments=self.config.time_bucket_increments,
            log=self.config.time_bucket_fn == "log",
        )
        return encoded_PD


def _uniform(rows: int, buckets: int, width: int) -> nn.Parameter:
    bound = sqrt(1 / buckets)
    return nn.Parameter(torch.empty(rows, width).uniform_(-bound, bound))
