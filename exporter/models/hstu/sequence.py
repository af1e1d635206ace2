"""Sequence that the parts of an HSTU encoder pass on: one per row."""

from dataclasses import dataclass

from torch import Tensor

from exporter.models.blocks.jagged import Layout


@dataclass(frozen=True, kw_only=True)
class EncoderSequence:
    """Rows of contextual elements, then events with the oldest first, then candidates if there are any."""

    values: Tensor  # (P, D)
    timestamps: Tensor  # (P,); the context has time 0
    layout: Layout
    candidates: Layout | None = None

    @property
    def history_lengths(self) -> Tensor:
        """Number of elements of each row that are not candidates, (B,)."""
        lengths_B = self.layout.lengths
        return lengths_B if self.candidates is None else lengths_B - self.candidates.lengths
