"""dlrm_hstu: HSTU layers over history and candidates in one sequence, and several tasks per candidate.

B rows, M candidates of all rows together, D width.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from exporter.config.families.multi_task.dlrm_hstu import DlrmHstuConfig
from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.models.blocks.dropout import Dropout
from exporter.models.blocks.tasks import task_outputs
from exporter.models.embedded_tower import EmbeddedTower, require_model
from exporter.models.hstu.contextualized_mlp import SwishLayerNorm, xavier_linear
from exporter.models.hstu.encoder import CandidateEncoder
from exporter.models.hstu.fusion_tower import FusionTower
from exporter.models.hstu.groups import CandidateGroups, HistoryGroups
from exporter.towers.tower import ServedModule

# Candidates per row, by which servers split the other outputs into rows.
COUNTS_OUTPUT = "__TARGET_REPEAT_INTERLEAVE_KEY__"


class DlrmHstu(EmbeddedTower):
    """The whole model, from input tensors to the outputs of every task, one per candidate."""

    def __init__(self, pipeline: PipelineConfig, dropout: Dropout) -> None:
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, DlrmHstuConfig)
        candidates = CandidateGroups.of(pipeline)
        width, hidden = config.width, config.item_embedding_hidden_dim
        self._config = config
        self._candidates = candidates
        self._hstu_transducer = _build_transducers(config, pipeline, candidates, dropout)
        self._item_embedding_mlp = nn.Sequential(
            xavier_linear(candidates.width, hidden),
            SwishLayerNorm(hidden),
            xavier_linear(hidden, width),
            nn.LayerNorm(width),
        )
        self._multitask_module = FusionTower(width, config.tower_mlp, config.tasks)

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        embedded = self.embedding_group.encode(embedded)
        if self._config.timestamps_ascending:
            numbers = self._numbers(embedded)
        else:
            # Reverse all elements: rows then have their oldest event first, and are in reverse order.
            reversed_groups = {key: value.flip(0) for key, value in embedded.items()}
            numbers = {task: value.flip(0) for task, value in self._numbers(reversed_groups).items()}
        return task_outputs(self._config.tasks, numbers) | {COUNTS_OUTPUT: embedded[self._candidates.lengths]}

    def _numbers(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        items_MD = self._item_embedding_mlp(embedded[self._candidates.items])
        numbers: dict[str, Tensor] = self._multitask_module(self._hstu_transducer(embedded), items_MD)
        return numbers


class Transducers(nn.Module):
    """Several transducers over the same candidates; their vectors of a candidate are concatenated."""

    def __init__(self, transducers: Iterable[CandidateEncoder]) -> None:
        super().__init__()
        self._transducers = nn.ModuleList(transducers)

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        """Return one embedding per candidate, (M, D), in the order of the transducers."""
        return torch.cat([transducer(embedded) for transducer in self._transducers], dim=-1)


def _build_transducers(
    config: DlrmHstuConfig, pipeline: PipelineConfig, candidates: CandidateGroups, dropout: Dropout
) -> CandidateEncoder | Transducers:
    """Return the only transducer, or a module over all of them: the checkpoint's names differ so."""
    transducers = [
        CandidateEncoder(
            hstu,
            HistoryGroups.of(
                pipeline, hstu, concat_contextual=config.concat_contextual
            ).ending_in_candidates(),
            candidates,
            max_seq_len=config.max_seq_len,
            dropout=dropout,
        )
        for hstu in config.transducers
    ]
    return transducers[0] if len(transducers) == 1 else Transducers(transducers)


def build_served(config: TowerConfig) -> ServedModule:
    """Return the module of the model tower.

    Raises:
        InvalidSpec: `config` is of another tower.
    """
    require_model(config)
    return DlrmHstu(config.pipeline, Dropout())


def build_trained(pipeline: PipelineConfig, dropout: Dropout) -> DlrmHstu:
    """Return the whole model, to be trained."""
    return DlrmHstu(pipeline, dropout)
