"""Towers of the match families: each is served alone, with the tables it reads; both are trained together.

B rows, D width of the outputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.blocks.match_towers import DeepTowerConfig, MatchConfig, Similarity
from exporter.config.families.match.hstu_match import HstuMatchConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig, TowerConfig
from exporter.models.blocks.dropout import Dropout
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.variational_dropout import GroupDropouts
from exporter.models.contract import check_inputs, list_demands
from exporter.models.embedding.embedding_group import EmbeddingGroup
from exporter.spec import TowerName
from exporter.towers.tower import ServedModule
from exporter.towers.view import training_tower


class MatchTower(nn.Module, ABC):
    """A tower, with its tables unless both towers share them; `pipeline` has only the tower's groups."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__()
        if not pipeline.model.tables_are_shared:
            self.embedding_group = EmbeddingGroup(pipeline)
        self.group_variational_dropouts = GroupDropouts(pipeline)

    def forward(self, encoded: Mapping[str, Tensor]) -> Tensor:
        """Return the tower's output from the groups that the embedding group has looked up and encoded."""
        return self.represent(self.group_variational_dropouts(encoded))

    def remarks(self) -> tuple[str, ...]:
        """Return what `ServedModule.remarks` returns."""
        return ()

    @abstractmethod
    def represent(self, groups: Mapping[str, Tensor]) -> Tensor:
        """Return the tower's output from the encoded groups."""


class DeepTower(MatchTower):
    """Tower from concatenated DEEP groups, through an MLP, to one vector per row: (B, D)."""

    def __init__(self, pipeline: PipelineConfig, model: MatchConfig, tower: DeepTowerConfig) -> None:
        super().__init__(pipeline)
        self._inputs = tower.inputs
        self._similarity = model.similarity
        width = sum(group_width(pipeline, name) for name in tower.inputs)
        self.mlp = nn.Identity() if tower.mlp is None else Mlp(width, tower.mlp)
        self.output = build_projection(width if tower.mlp is None else tower.mlp.hidden_units[-1], model)

    def represent(self, groups: Mapping[str, Tensor]) -> Tensor:
        groups_BD = torch.cat([groups[name] for name in self._inputs], dim=1)
        return normalise(self.output(self.mlp(groups_BD)), self._similarity)


class ServedMatchTower(ServedModule):
    """Served module of one tower; its weights and its output carry the tower's name in the checkpoint.

    Tables that the model's towers share lie beside the tower, but only those that this tower reads.
    """

    def __init__(self, config: TowerConfig, tower: MatchTower) -> None:
        super().__init__()
        self._name = checkpoint_name(config.name)
        self._features = config.pipeline.features
        if config.pipeline.model.tables_are_shared:
            self.embedding_group = EmbeddingGroup(config.pipeline)
        self.add_module(self._name, tower)

    @property
    def _tower(self) -> MatchTower:
        tower = self.get_submodule(self._name)
        assert isinstance(tower, MatchTower)
        return tower

    @property
    def _tables(self) -> EmbeddingGroup:
        return embedding_group_of(self._tower, self)

    def lookup(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._tables.look_up(check_inputs(inputs, self._features, self.row_limits))

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"{self._name}_emb": self._tower(self._tables.encode(embedded))}

    def demands(self, inputs: Mapping[str, Tensor]) -> tuple[str, ...]:
        return list_demands(inputs, self._features, self.row_limits)

    def remarks(self) -> tuple[str, ...]:
        return self._tower.remarks()


class MatchModel(nn.Module):
    """Both towers of a match model, to be trained and saved."""

    def __init__(self, pipeline: PipelineConfig, user: MatchTower, item: MatchTower) -> None:
        super().__init__()
        if pipeline.model.tables_are_shared:
            self.embedding_group = EmbeddingGroup(pipeline)
        self.user_tower = user
        self.item_tower = item

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the towers' outputs by name; there may be more items than rows."""
        towers = {TowerName.USER: self.user_tower, TowerName.ITEM: self.item_tower}
        return {
            f"{checkpoint_name(name)}_emb": tower(embedding_group_of(tower, self)(inputs))
            for name, tower in towers.items()
        }


def make_builders(
    build_tower: Callable[[TowerConfig], MatchTower],
) -> tuple[Callable[[TowerConfig], ServedModule], Callable[[PipelineConfig, Dropout], MatchModel]]:
    """Return `build_served` and `build_trained` of a family, from what builds one tower without dropout."""

    def build_served(config: TowerConfig) -> ServedModule:
        return ServedMatchTower(config, build_tower(config))

    def build_trained(pipeline: PipelineConfig, _dropout: Dropout) -> MatchModel:
        user, item = (
            build_tower(training_tower(pipeline, name)) for name in (TowerName.USER, TowerName.ITEM)
        )
        return MatchModel(pipeline, user, item)

    return build_served, build_trained


def embedding_group_of(tower: MatchTower, owner: nn.Module) -> EmbeddingGroup:
    """Return the tower's own embedding group; if it has none, that of the `owner` of the shared tables."""
    group = getattr(tower, "embedding_group", None) or owner.get_submodule("embedding_group")
    assert isinstance(group, EmbeddingGroup)
    return group


def checkpoint_name(name: TowerName) -> str:
    """Return the name of a tower in the checkpoint."""
    return f"{name}_tower"


def build_projection(
    in_features: int, model: MatchConfig | HstuMatchConfig, *, bias: bool = True
) -> nn.Module:
    """Build the projection to the width of the outputs, or the identity if the model has none."""
    return nn.Linear(in_features, model.output_dim, bias=bias) if model.output_dim else nn.Identity()


def normalise(x: Tensor, similarity: Similarity) -> Tensor:
    """Scale vectors to unit length along the last axis for the cosine; leave them for other similarities."""
    return F.normalize(x, dim=-1) if similarity is Similarity.COSINE else x
