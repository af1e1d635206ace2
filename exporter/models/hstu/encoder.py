"""HSTU encoders (arXiv:2402.17152): from a user's groups to one embedding per row or per candidate.

B rows, M candidates, D width.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.hstu.encoder import ContextualPreprocessorConfig, HstuConfig, UihPreprocessorConfig
from exporter.models.blocks.dropout import Dropout
from exporter.models.hstu.contextual_preprocessor import ContextualPreprocessor
from exporter.models.hstu.groups import CandidateGroups, HistoryGroups
from exporter.models.hstu.positional_encoder import PositionalEncoder
from exporter.models.hstu.postprocessor import build_postprocessor
from exporter.models.hstu.preprocessor import Preprocessor, UihPreprocessor
from exporter.models.hstu.sequence import EncodedTail, EncoderSequence
from exporter.models.hstu.stu import StuStack


class HstuEncoder(nn.Module):
    """Base of the encoders: preprocessor, positional encoder, STU layers and postprocessor."""

    def __init__(
        self, preprocessor: Preprocessor, config: HstuConfig, *, max_seq_len: int, dropout: Dropout
    ) -> None:
        super().__init__()
        width, prefix = config.stu.embedding_dim, preprocessor.groups.contextual_count
        self._query_time = preprocessor.groups.query_time
        self._input_dropout = dropout.input
        self._input_preprocessor = preprocessor
        self._positional_encoder: PositionalEncoder | None = None
        if config.positional_encoder is not None:
            self._positional_encoder = PositionalEncoder(
                config.positional_encoder, width=width, prefix=prefix
            )
        self._stu_module = StuStack(config, prefix=prefix, max_seq_len=max_seq_len, dropout=dropout.output)
        self._output_postprocessor = build_postprocessor(config.postprocessor, width)

    def encode(self, embedded: Mapping[str, Tensor]) -> EncodedTail:
        """Return the elements that are asked for, after all STU layers: candidates, or each row's last."""
        sequence: EncoderSequence = self._input_preprocessor(embedded)
        if self._positional_encoder is not None:
            query_time_B1 = None if self._query_time is None else embedded[self._query_time]
            sequence = replace(sequence, values=self._positional_encoder(sequence, query_time_B1))
        values_PD = F.dropout(sequence.values, self._input_dropout, self.training)
        encoded: EncodedTail = self._stu_module(replace(sequence, values=values_PD))
        return encoded


class UserEncoder(HstuEncoder):
    """Encoder of a user's history; the last element of each row is the user's embedding."""

    def __init__(
        self, config: HstuConfig, groups: HistoryGroups, *, max_seq_len: int, dropout: Dropout
    ) -> None:
        assert isinstance(config.preprocessor, UihPreprocessorConfig)
        preprocessor = UihPreprocessor(
            config.preprocessor,
            groups,
            width=config.stu.embedding_dim,
            contextual_dropout=dropout.contextual,
        )
        super().__init__(preprocessor, config, max_seq_len=max_seq_len, dropout=dropout)

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        """Return one embedding per row, (B, D), zeros for an empty row."""
        encoded = self.encode(embedded)
        user_BD = self._output_postprocessor(encoded.values, encoded.timestamps)
        return user_BD * (encoded.row_lengths > 0).unsqueeze(-1)


class CandidateEncoder(HstuEncoder):
    """Encoder of history and candidates; each candidate attends to the history and no other candidate."""

    def __init__(
        self,
        config: HstuConfig,
        groups: HistoryGroups,
        candidates: CandidateGroups,
        *,
        max_seq_len: int,
        dropout: Dropout,
    ) -> None:
        assert isinstance(config.preprocessor, ContextualPreprocessorConfig)
        preprocessor = ContextualPreprocessor(
            config.preprocessor,
            groups,
            candidates,
            width=config.stu.embedding_dim,
            contextual_dropout=dropout.contextual,
        )
        super().__init__(preprocessor, config, max_seq_len=max_seq_len, dropout=dropout)

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        """Return one embedding per candidate, (M, D)."""
        encoded = self.encode(embedded)
        candidates_MD: Tensor = self._output_postprocessor(encoded.values, encoded.timestamps)
        return candidates_MD
