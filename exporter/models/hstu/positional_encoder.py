"""Where in its row, and how long ago, each element of a sequence is.

B rows, P elements of all rows together, D width.
"""

from math import sqrt

import torch
from torch import Tensor, nn

from exporter.config.hstu import PositionalEncoderConfig
from exporter.models.hstu.sequence import EncoderSequence
from exporter.models.jagged import last


class PositionalEncoder(nn.Module):
    """Adds an embedding of the position and, with time encoding, one of the age."""

    def __init__(self, config: PositionalEncoderConfig, *, width: int, prefix: int) -> None:
        super().__init__()
        self._config = config
        self._scale = width**0.5
        self._prefix = prefix
        positions = config.num_position_buckets
        self._position_embeddings_weight = _uniform(positions, positions, width)
        if config.use_time_encoding:
            buckets = config.num_time_buckets
            self._timestamp_embeddings_weight = _uniform(buckets + 1, buckets, width)

    def forward(self, sequence: EncoderSequence, query_time_B1: Tensor | None) -> Tensor:
        values_PD, layout = sequence.values * self._scale, sequence.layout
        history_P = sequence.history_lengths[layout.rows]
        highest = self._config.num_position_buckets - 1
        if not self._config.use_time_encoding:  # candidates are all at one place, behind the history
            places_P = torch.minimum(layout.places, history_P).clamp(max=highest)
            return values_PD + self._position_embeddings_weight[places_P]
        # Counted from the history's end, so that the newest are always alike; the prefix from its start.
        from_end_P = (history_P - layout.places).clamp(min=0) + self._prefix
        positions_P = torch.where(layout.places < self._prefix, layout.places, from_end_P.clamp(max=highest))
        anchor_B1 = query_time_B1
        if anchor_B1 is None:
            anchor_B1 = last(sequence.timestamps.unsqueeze(-1), layout)
        ages_P = anchor_B1.flatten()[layout.rows] - sequence.timestamps
        return values_PD + (
            self._timestamp_embeddings_weight[self._time_buckets(ages_P)]
            + self._position_embeddings_weight[positions_P]
        )

    def _time_buckets(self, ages_P: Tensor) -> Tensor:
        """TorchEasyRec's arithmetic step by step: another order of it moves ages across a bucket's edge."""
        count = self._config.num_time_buckets
        steps = ages_P.clamp(min=1e-6) / self._config.time_bucket_increments
        spread = torch.log(steps) if self._config.time_bucket_fn == "log" else torch.sqrt(steps)
        return ((spread / count).clamp(min=0, max=1) * count).int()


def _uniform(rows: int, buckets: int, width: int) -> nn.Parameter:
    bound = sqrt(1 / buckets)
    return nn.Parameter(torch.empty(rows, width).uniform_(-bound, bound))
