"""Embedding of feature groups: ids are looked up in tables, and a group's features concatenated.

B rows, N elements of all rows together, V values of all elements, L elements of the longest row, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt

import torch
from torch import Tensor, nn

from exporter.config.features.tables import lookups
from exporter.config.features.widths import sequence_widths
from exporter.config.schema import Feature, FeatureGroup, GroupKind, PipelineConfig, TableConfig
from exporter.models.blocks.dense_embedding import DenseEmbedding, build_dense_embedding
from exporter.models.blocks.jagged import Layout, cumulative_offsets, first, pad_to
from exporter.models.blocks.sequence_encoders import build_encoder
from exporter.models.embedding.id_map import IdMap
from exporter.models.embedding.tables import FLOATS, EmbeddingTable, FloatTable
from exporter.spec import IdWeights


class EmbeddingGroup(nn.Module):
    """All groups of a pipeline config, embedded to a dict of tensors under TorchEasyRec's names.

    A DEEP or WIDE group `g` gives `g` (B, D). Another group gives `g.query` (B, D) for its features of one
    element per row, and for its sequence features `g.sequence` with `g.sequence_length` (B,): the sequence is
    (N, D) in a jagged group and (B, L, D) in a padded one, where L is the first sequence feature's.

    `look_up` reads the tables. `encode` is the dense part behind it: it embeds plain numbers, and appends the
    encoders' outputs to DEEP groups.
    """

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__()
        self._groups = pipeline.embedded_groups
        self._features = {feature.name: feature for feature in pipeline.features}
        self.id_weights = IdWeights.APPLY  # build_tower sets what the tower's options say
        self.emb_impls, self.seq_emb_impls = nn.ModuleDict(), nn.ModuleDict()
        self._tables: dict[tuple[FeatureGroup, str], str] = {}  # group and feature -> the table's path
        self.id_maps: dict[str, str] = {}  # a table's path -> that of its map of ids
        for lookup in lookups(self._groups, self._features):
            table = ".".join(lookup.path)
            self._tables[lookup.group, lookup.feature.name] = table
            _add_module(self, lookup.path, partial(_new_table, lookup.table))
            if lookup.id_map_path is not None:
                self.id_maps[table] = ".".join(lookup.id_map_path)
                _add_module(self, lookup.id_map_path, partial(IdMap, lookup.table.rows))
        self._dense_embeddings: dict[str, str] = {}  # feature -> path of the module that embeds its numbers
        for group in self._groups:
            self._add_dense_embeddings(group)
        self._group_name_to_seq_encoders = nn.ModuleDict(
            {group.name: _encoders(group, self._features) for group in self._groups if group.encoders}
        )

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.encode(self.look_up(inputs))

    @property
    def tables(self) -> dict[str, tuple[str, ...]]:
        """Features that are looked up in each table, by the table's path."""
        features: dict[str, dict[str, None]] = {}
        for (_, feature), path in self._tables.items():
            features.setdefault(path, {})[feature] = None
        return {path: tuple(names) for path, names in features.items()}

    def id_map(self, path: str) -> IdMap:
        """Return the map at a path of `id_maps`."""
        module = self.get_submodule(path)
        assert isinstance(module, IdMap)
        return module

    def look_up(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the groups and the sequence groups, looked up in the tables."""
        embedded: dict[str, Tensor] = {}
        for group in self._groups:
            features = [self._features[name] for name in group.features]
            if not group.kind.is_row_vector:
                embedded |= self._sequence(group, features, inputs)
            elif features:
                embedded[group.name] = torch.cat(
                    [self._row_vector(f, group, inputs) for f in features], dim=1
                )
        return embedded

    def encode(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the groups with numbers embedded and, in DEEP groups, outputs of encoders appended."""
        encoded = dict(embedded)
        for group in self._groups:
            if any(name in self._dense_embeddings for name in group.features):
                encoded[group.name] = self._embed_numbers(group, embedded[group.name])
        for name, encoders in self._group_name_to_seq_encoders.items():
            assert isinstance(encoders, nn.ModuleList)
            own = [encoded[name]] if name in encoded else []
            encoded[name] = torch.cat([*own, *(encoder(embedded) for encoder in encoders)], dim=-1)
        return encoded

    def _add_dense_embeddings(self, group: FeatureGroup) -> None:
        """Add the weights of the group's dense embeddings; all groups share those of a feature."""
        for feature in (self._features[name] for name in group.features):
            if (config := feature.dense_embedding) is None:
                continue
            path = "emb_impls", feature.data_group, "dense_ec", "dense_embs", config.key(feature.name)
            _add_module(self, path, partial(build_dense_embedding, config))
            self._dense_embeddings[feature.name] = ".".join(path)
            self._dense_embedding(feature.name).add(feature.name)

    def _dense_embedding(self, feature: str) -> DenseEmbedding:
        module = self.get_submodule(self._dense_embeddings[feature])
        assert isinstance(module, DenseEmbedding)
        return module

    def _embed_numbers(self, group: FeatureGroup, looked_up: Tensor) -> Tensor:
        """Return a DEEP group's vector with the dense embeddings in the places of their numbers."""
        parts = looked_up.split([self._features[name].looked_up_width for name in group.features], dim=1)
        embedded = [
            self._dense_embedding(name).embed(name, part) if name in self._dense_embeddings else part
            for name, part in zip(group.features, parts, strict=True)
        ]
        return torch.cat(embedded, dim=1)

    def _sequence(
        self, group: FeatureGroup, features: list[Feature], inputs: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the tensors of a group of sequences."""
        embedded: dict[str, Tensor] = {}
        queries = [self._query(f, group, inputs) for f in features if not f.is_sequence]
        if queries:
            embedded[f"{group.name}.query"] = torch.cat(queries, dim=1)
        sequences = [feature for feature in features if feature.is_sequence]
        if not sequences:
            return embedded
        elements = [self._elements(f, group, inputs) for f in sequences]
        if group.kind is GroupKind.SEQUENCE:
            elements = _pad_sequences(elements, sequences, inputs)
        embedded[f"{group.name}.sequence"] = torch.cat(elements, dim=-1)
        embedded[f"{group.name}.sequence_length"] = inputs[f"{sequences[0].name}.lengths"].long()
        return embedded

    def _row_vector(self, feature: Feature, group: FeatureGroup, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return one vector per row: (B, D)."""
        values = self._values(feature, group, inputs)
        if feature.table is None:
            return values
        offsets = cumulative_offsets(inputs[f"{feature.name}.lengths"])
        if feature.is_sequence and feature.is_multivalued:
            offsets = cumulative_offsets(inputs[f"{feature.name}.key_lengths"])[offsets]
        is_weighted = feature.weighted and self.id_weights is IdWeights.APPLY
        weights = inputs[f"{feature.name}.weights"] if is_weighted else None
        return self._table(feature, group).bags(values, offsets, feature.pooling, weights)

    def _query(self, feature: Feature, group: FeatureGroup, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return one vector per row, (B, D), for a feature beside sequences; id weights are ignored here."""
        values = self._values(feature, group, inputs)
        if feature.table is None:
            return values
        offsets = cumulative_offsets(inputs[f"{feature.name}.lengths"])
        table = self._table(feature, group)
        if feature.is_multivalued:
            return table.bags(values, offsets, feature.pooling)
        # A query of one value takes the first value of its row, and zeros for an empty row.
        return first(table.rows(values), offsets)

    def _elements(self, feature: Feature, group: FeatureGroup, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return one vector per element: (N, D)."""
        values = self._values(feature, group, inputs)
        if feature.table is None:
            return values
        table = self._table(feature, group)
        if feature.is_multivalued:
            offsets = cumulative_offsets(inputs[f"{feature.name}.key_lengths"])
            return table.bags(values, offsets, feature.pooling)
        return table.rows(values)

    def _values(self, feature: Feature, group: FeatureGroup, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the feature's values: numbers, or row numbers of its table."""
        values = inputs[f"{feature.name}.values"]
        path = self.id_maps.get(self._tables.get((group, feature.name), ""))
        if path is None:
            return values
        rows: Tensor = self.id_map(path)(values)
        return rows

    def _table(self, feature: Feature, group: FeatureGroup) -> EmbeddingTable:
        table = self.get_submodule(self._tables[group, feature.name])
        assert isinstance(table, EmbeddingTable)
        return table


def _pad_sequences(
    elements: Sequence[Tensor], sequences: Sequence[Feature], inputs: Mapping[str, Tensor]
) -> list[Tensor]:
    """Pad each feature with zeros, (N, D) to (B, L, D), or cut it to L, the longest row of the first."""
    lengths_B = inputs[f"{sequences[0].name}.lengths"].long()
    longest = Layout.of(lengths_B, total=elements[0].shape[0]).longest
    padded = []
    for feature, values_ND in zip(sequences, elements, strict=True):
        padded_BLD = pad_to(values_ND, cumulative_offsets(inputs[f"{feature.name}.lengths"].long()), longest)
        if feature.sequence != sequences[0].sequence:
            # L is at least 2, and a row of this feature may be longer than every row of the first.
            within_L = torch.arange(longest, device=lengths_B.device) < lengths_B.max()
            padded_BLD = torch.where(within_L.unsqueeze(-1), padded_BLD, 0.0)
        padded.append(padded_BLD)
    return padded


def _add_module(root: nn.Module, path: Sequence[str], build: Callable[[], nn.Module]) -> None:
    """Add a module below `root`, unless it is there already."""
    *parents, name = path
    parent = root.get_submodule(parents[0])
    for step in parents[1:]:
        assert isinstance(parent, nn.ModuleDict)
        if step not in parent:
            parent[step] = nn.ModuleDict()
        parent = parent[step]
    assert isinstance(parent, nn.ModuleDict)
    if name not in parent:
        parent[name] = build()


def _new_table(config: TableConfig) -> FloatTable:
    table = FloatTable(torch.empty((config.rows, config.dim), dtype=FLOATS[config.dtype]))
    bound = sqrt(1 / max(config.rows, 1))  # none until the checkpoint's are known
    nn.init.uniform_(table.weight, -bound, bound)
    return table


def _encoders(group: FeatureGroup, features: Mapping[str, Feature]) -> nn.ModuleList:
    widths = {inner.name: sequence_widths(inner, features) for inner in group.sequence_groups}
    return nn.ModuleList(
        build_encoder(encoder, query_width=widths[encoder.group][0], sequence_width=widths[encoder.group][1])
        for encoder in group.encoders
    )
