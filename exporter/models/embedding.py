"""Feature groups: ids looked up in tables, numbers as they are, put together as the model reads them.

B rows, N elements of all rows together, D width of a group.
"""

from collections.abc import Iterable, Mapping
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.schema import Feature, FeatureGroup, GroupKind, PipelineConfig, Table
from exporter.errors import UnsupportedConfig
from exporter.models.jagged import cumulated, first


class EmbeddingGroup(nn.Module):
    """Every group of a pipeline config, as a dict of tensors under TorchEasyRec's names.

    A DEEP group `g` is `g` (B, D). A group of one of the sequence kinds is `g.query` (B, D), its features
    of one element per row, and `g.sequence` (N, D) with `g.sequence_length` (B,), its sequence features.
    """

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__()
        self._groups = pipeline.groups
        self._features = {feature.name: feature for feature in pipeline.features}
        pooled = self._tables(group for group in pipeline.groups if group.kind is GroupKind.DEEP)
        single = self._tables(group for group in pipeline.groups if group.kind is not GroupKind.DEEP)
        self.emb_impls = _under(("__BASE__", "ebc", "embedding_bags"), _embeddings(pooled))
        by_width = {
            str(dim): _under(("embeddings",), _embeddings([table for table in single if table.dim == dim]))
            for dim in dict.fromkeys(table.dim for table in single)
        }
        self.seq_emb_impls = _under(("__BASE__", "ec_dict"), nn.ModuleDict(by_width))

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        embedded: dict[str, Tensor] = {}
        for group in self._groups:
            features = [self._features[name] for name in group.features]
            if group.kind is GroupKind.DEEP:
                embedded[group.name] = torch.cat([self._pooled(f, inputs) for f in features], dim=1)
                continue
            queries = [self._query(f, inputs) for f in features if not f.is_sequence]
            elements = [self._elements(f, inputs) for f in features if f.is_sequence]
            if queries:
                embedded[f"{group.name}.query"] = torch.cat(queries, dim=1)
            if elements:
                lengths = next(f.name for f in features if f.is_sequence) + ".lengths"
                embedded[f"{group.name}.sequence"] = torch.cat(elements, dim=1)
                embedded[f"{group.name}.sequence_length"] = inputs[lengths].long()
        return embedded

    def _pooled(self, feature: Feature, inputs: Mapping[str, Tensor]) -> Tensor:
        if feature.table is None:
            return inputs[f"{feature.name}.values"]
        weight = self.get_parameter(f"emb_impls.__BASE__.ebc.embedding_bags.{feature.table.name}.weight")
        return _pooled_rows(weight, inputs, feature)

    def _query(self, feature: Feature, inputs: Mapping[str, Tensor]) -> Tensor:
        if feature.table is None:
            return inputs[f"{feature.name}.values"]
        if feature.is_multivalued:
            return _pooled_rows(self._weight(feature.table), inputs, feature)
        # A query of one value takes the first of its row; padding gives zeros to a row without any.
        return first(self._elements(feature, inputs), cumulated(inputs[f"{feature.name}.lengths"]))

    def _elements(self, feature: Feature, inputs: Mapping[str, Tensor]) -> Tensor:
        values = inputs[f"{feature.name}.values"]
        return values if feature.table is None else F.embedding(values, self._weight(feature.table))

    def _weight(self, table: Table) -> Tensor:
        path = f"seq_emb_impls.__BASE__.ec_dict.{table.dim}.embeddings"
        return self.get_parameter(f"{path}.{table.name}.weight")

    def _tables(self, groups: Iterable[FeatureGroup]) -> list[Table]:
        features = [self._features[name] for group in groups for name in group.features]
        for feature in features:
            if feature.is_sequence and feature.is_multivalued:
                raise UnsupportedConfig(
                    f"sequence feature {feature.name} has several values per element",
                    hint="set value_dim: 1, or leave the feature out of the model's groups",
                    where=feature.name,
                )
        return list({f.table.name: f.table for f in features if f.table is not None}.values())


def group_widths(pipeline: PipelineConfig, group: str) -> tuple[int, ...]:
    """The width of each feature of a group, in the group's order."""
    return tuple(pipeline.feature(name).width for name in pipeline.group(group).features)


def _pooled_rows(weight: Tensor, inputs: Mapping[str, Tensor], feature: Feature) -> Tensor:
    ids, lengths_B = inputs[f"{feature.name}.values"], inputs[f"{feature.name}.lengths"]
    return F.embedding_bag(
        ids, weight, cumulated(lengths_B), mode=feature.pooling.value, include_last_offset=True
    )


def _embeddings(tables: list[Table]) -> nn.ModuleDict:
    modules = {table.name: nn.Embedding(table.rows, table.dim) for table in tables}
    for module in modules.values():
        bound = sqrt(1 / module.num_embeddings)
        nn.init.uniform_(module.weight, -bound, bound)
    return nn.ModuleDict(modules)


def _under(path: tuple[str, ...], module: nn.ModuleDict) -> nn.ModuleDict:
    """Nest `module` below `path`, for the names in the checkpoint; an empty one stays empty."""
    for name in reversed(path) if len(module) else ():
        module = nn.ModuleDict({name: module})
    return module
