"""hstu_match: a user tower of HSTU layers over the history, and an item tower over the candidate.

B rows, N candidates, D width of the outputs.
"""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.blocks.match_towers import Similarity
from exporter.config.families.match.hstu_match import HstuMatchConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.errors import InvalidSpec
from exporter.models.blocks.dropout import Dropout
from exporter.models.blocks.mlp import Mlp
from exporter.models.embedded_tower import EmbeddedTower
from exporter.models.embedding.embedding_group import EmbeddingGroup
from exporter.models.hstu.encoder import UserEncoder
from exporter.models.hstu.groups import HistoryGroups
from exporter.models.match_tower import build_projection
from exporter.spec import TowerName
from exporter.towers.tower import ServedModule

USER_OUTPUT = "user_tower_emb"
ITEM_OUTPUT = "item_tower_emb"


class UserTower(nn.Module):
    """Module from the embedded user groups to one vector per row: (B, D)."""

    def __init__(self, pipeline: PipelineConfig, dropout: Dropout) -> None:
        super().__init__()
        config = _config(pipeline)
        self._config = config
        self._hstu_encoder = UserEncoder(
            config.hstu,
            HistoryGroups.of(pipeline, config.hstu),
            max_seq_len=config.max_seq_len,
            dropout=dropout,
        )
        self.output = build_projection(config.hstu.stu.embedding_dim, config)

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        if self._config.timestamps_ascending:
            user_BD = self._hstu_encoder(embedded)
        else:
            # Reverse all elements: rows then have their oldest event first, and are in reverse order.
            reversed_groups = {key: value.flip(0) for key, value in embedded.items()}
            user_BD = self._hstu_encoder(reversed_groups).flip(0)
        return _normalise(self.output(user_BD), self._config.similarity)


class ItemTower(nn.Module):
    """Module from the embedded candidate group to one vector per candidate: (N, D)."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__()
        config = _config(pipeline)
        self._config = config
        is_sequence = pipeline.feature(pipeline.group(config.item_input).features[0]).is_sequence
        self._candidates = f"{config.item_input}.{'sequence' if is_sequence else 'query'}"
        width = group_width(pipeline, self._candidates)
        self.mlp = nn.Identity() if config.item_mlp is None else Mlp(width, config.item_mlp)
        self.output = build_projection(
            width if config.item_mlp is None else config.item_mlp.hidden_units[-1], config
        )

    def forward(self, embedded: Mapping[str, Tensor]) -> Tensor:
        return _normalise(self.output(self.mlp(embedded[self._candidates])), self._config.similarity)


class ServedUserTower(EmbeddedTower):
    """The user tower with its tables: from input tensors to `user_tower_emb`."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        self.user_tower = UserTower(pipeline, Dropout())

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {USER_OUTPUT: self.user_tower(self.embedding_group.encode(embedded))}


class ServedItemTower(EmbeddedTower):
    """The item tower with its tables: from input tensors to `item_tower_emb`."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        self.item_tower = ItemTower(pipeline)

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {ITEM_OUTPUT: self.item_tower(embedded)}


class HstuMatch(nn.Module):
    """Both towers over one set of tables, in the training view, to be trained and saved."""

    def __init__(self, pipeline: PipelineConfig, dropout: Dropout) -> None:
        super().__init__()
        self._item_input = _config(pipeline).item_input
        self.embedding_group = EmbeddingGroup(pipeline)
        self.user_tower = UserTower(pipeline, dropout)
        self.item_tower = ItemTower(pipeline)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        embedded = self.embedding_group(inputs)
        history = {
            key: value for key, value in embedded.items() if not key.startswith(f"{self._item_input}.")
        }
        return {USER_OUTPUT: self.user_tower(history), ITEM_OUTPUT: self.item_tower(embedded)}


def build_served(config: TowerConfig) -> ServedModule:
    """Return the served module of one tower, in the view of its config.

    Raises:
        InvalidSpec: the family has no such tower.
    """
    match config.name:
        case TowerName.USER:
            return ServedUserTower(config.pipeline)
        case TowerName.ITEM:
            return ServedItemTower(config.pipeline)
        case _:
            raise InvalidSpec(
                f"hstu_match has no tower `{config.name}`",
                hint="its towers are user and item",
                where="towers",
            )


def build_trained(pipeline: PipelineConfig, dropout: Dropout) -> HstuMatch:
    """Return both towers over one set of tables, to be trained."""
    return HstuMatch(pipeline, dropout)


def _config(pipeline: PipelineConfig) -> HstuMatchConfig:
    assert isinstance(pipeline.model, HstuMatchConfig)
    return pipeline.model


def _normalise(x_ND: Tensor, similarity: Similarity) -> Tensor:
    """Scale vectors to unit length for the cosine; leave them for other similarities."""
    return F.normalize(x_ND, dim=-1, eps=1e-6) if similarity is Similarity.COSINE else x_ND
