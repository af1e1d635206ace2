"""The HSTU encoder of a two-tower model: a user's groups to one embedding per row.

B rows, P elements of all rows together, D width.
"""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.hstu import HstuConfig
from exporter.models.dropout import Dropout
from exporter.models.hstu.groups import HistoryGroups
from exporter.models.hstu.positional_encoder import PositionalEncoder
from exporter.models.hstu.postprocessor import build_postprocessor
from exporter.models.hstu.preprocessor import UihPreprocessor
from exporter.models.hstu.stu import StuStack
from exporter.models.jagged import last


class HstuEncoder(nn.Module):
    """Preprocessor, positions, STU layers, and the last position of each row through the postprocessor."""

    def __init__(
        self, config: HstuConfig, groups: HistoryGroups, *, max_seq_len: int, dropout: Dropout
    ) -> None:
        super().__init__()
        width, prefix = config.stu.embedding_dim, groups.contextual_count
        self._query_time = groups.query_time
        self._input_dropout = dropout.input
        self._input_preprocessor = UihPreprocessor(
            config.preprocessor, groups, width=width, contextual_dropout=dropout.contextual
        )
        self._positional_encoder: PositionalEncoder | None = None
        if config.positional_encoder is not None:
            self._positional_encoder = PositionalEncoder(
                config.positional_encoder, width=width, prefix=prefix
            )
        self._stu_module = StuStack(config, prefix=prefix, max_seq_len=max_seq_len, dropout=dropout.output)
        self._output_postprocessor = build_postprocessor(config.postprocessor, width)

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        values_PD, timestamps_P, layout = self._input_preprocessor(embedded)
        if self._positional_encoder is not None:
            query_time_B1 = None if self._query_time is None else embedded[self._query_time]
            values_PD = self._positional_encoder(values_PD, timestamps_P, layout, query_time_B1)
        values_PD = F.dropout(values_PD, self._input_dropout, self.training)
        values_PD, timestamps_P, layout = self._stu_module(values_PD, timestamps_P, layout)
        # The postprocessor looks at each element alone, so the last one is all it needs to see.
        newest_B1 = last(timestamps_P.unsqueeze(-1), layout)
        user_BD = self._output_postprocessor(last(values_PD, layout), newest_B1.squeeze(-1))
        return user_BD * (layout.lengths > 0).unsqueeze(-1)
