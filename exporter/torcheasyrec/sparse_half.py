"""The sparse half of a tower in TorchEasyRec's folder: checks and lookups as a graph for TorchScript.

The graph is called as that of TorchEasyRec's exporter: with a dict of tensors, of which it reads its inputs
by name, and a device. It returns the tensors between the halves, in order, and the widths of what lies side
by side in them.
"""

import operator
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node

from exporter.checkpoint.keymap import ID_MAP_IDS, ID_MAP_ROWS
from exporter.config.features.tables import Lookup, lookups
from exporter.config.schema import Feature, FeatureGroup, GroupKind, Pooling
from exporter.dims.halves import Column, Halves
from exporter.dims.plan import BATCH, DimPlan
from exporter.dtypes import TableDtype
from exporter.models.embedding.embedding_group import EmbeddingGroup
from exporter.models.embedding.tables import EmbeddingTable, FloatTable, Int4Table, Int8Table
from exporter.spec import IdWeights
from exporter.torcheasyrec import operators
from exporter.towers.tower import Tower

_UNBOUNDED = 2**62  # entries of a dim that nothing bounds
_DTYPES = {"int64": torch.int64, "int32": torch.int32, "float32": torch.float32}


class SparseHalf(nn.Module):
    """The eager twin of the scripted half, from inputs to the tensors between the halves, in order."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        device = next(iter(inputs.values())).device
        between: dict[str, Tensor] = self.graph(dict(inputs), device)[0]
        return between

    def look_up(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors between the halves; raises RuntimeError for inputs that it refuses."""
        with torch.no_grad():
            return self.forward(inputs)


def build_sparse_half(tower: Tower, halves: Halves) -> GraphModule:
    """Return the sparse half of a tower as a graph, whose tensors are the tower's, under the same names."""
    return _GraphBuilder(tower, halves).build()


class _GraphBuilder:
    """A graph in the making: each input and each intermediate that several groups read is one node."""

    def __init__(self, tower: Tower, halves: Halves) -> None:
        self._tower, self._halves = tower, halves
        self._pipeline = tower.config.pipeline
        [(path, self._group)] = (
            (path, module)
            for path, module in tower.module.named_modules()
            if isinstance(module, EmbeddingGroup)
        )
        self._prefix = f"{path}." if path else ""
        self._graph = Graph()
        data = self._graph.placeholder("data", type_expr=dict[str, Tensor])
        self._device = self._graph.placeholder("device", type_expr=torch.device, default_value="cpu")
        self._inputs = self._check(self._take(data, tower.plan))
        self._offsets: dict[str, Node] = {}

    def build(self) -> GraphModule:
        found = {
            each.name: self._cat([self._column(c) for c in each.columns]) for each in self._halves.row_vectors
        }
        for group in self._pipeline.embedded_groups:
            if not group.kind.is_row_vector:
                found |= self._sequence(group)
        names = [tensor.name for tensor in self._halves.plan.inputs]
        described = {}
        for vectors in self._halves.row_vectors:
            described[f"{vectors.name}__length_per_key"] = [each.end - each.first for each in vectors.columns]
        self._graph.output(({name: found[name] for name in names}, described))
        self._graph.lint()
        return GraphModule(self._tower.module, self._graph, "SparseHalf")

    def _call(self, function: Callable[..., object], *args: object) -> Node:
        return self._graph.call_function(function, args)  # type: ignore[arg-type]  # fx takes lists and nodes

    def _take(self, data: Node, plan: DimPlan) -> dict[str, Node]:
        """Take the inputs from the data, and check their dtypes and sizes."""
        dims = [dim.name for dim in plan.dims]
        names = [tensor.name for tensor in plan.inputs]
        axes = [
            [size if isinstance(size, int) else -1 - dims.index(size) for size in tensor.shape]
            for tensor in plan.inputs
        ]
        bounds = [(dim.low, _UNBOUNDED if dim.high is None else dim.high) for dim in plan.dims]
        dtypes = [_DTYPES[tensor.dtype] for tensor in plan.inputs]
        taken = self._call(operators.take_inputs, data, self._device, names, dtypes, axes, dims, bounds)
        return {name: self._call(operator.getitem, taken, place) for place, name in enumerate(names)}

    def _check(self, inputs: dict[str, Node]) -> dict[str, Node]:
        """Demand of the inputs what `exporter.models.contract` demands, before anything is looked up."""
        conditions: dict[str, Node] = {}
        first_of: dict[str, str] = {}  # sequence -> the lengths that those of its other features must equal
        for feature in self._pipeline.features:
            values, lengths = f"{feature.name}.values", f"{feature.name}.lengths"
            if feature.table is None and not feature.is_sequence:
                continue
            if feature.table is not None and feature.table.id_map is None:
                rows, table = feature.table.rows, feature.table.name
                message = f"{values} has an id outside the {rows} rows of table {table}"
                conditions[message] = self._call(operators.are_rows, inputs[values], rows)
            elements = values
            if feature.is_sequence and feature.is_multivalued:
                elements = f"{feature.name}.key_lengths"
                adds_up = self._call(operators.add_up, inputs[elements], inputs[values])
                conditions[_sum_differs(elements)] = adds_up
            first = first_of.setdefault(feature.sequence.name, lengths) if feature.sequence else lengths
            if first == lengths:
                adds_up = self._call(operators.add_up, inputs[lengths], inputs[elements])
                conditions[_sum_differs(lengths)] = adds_up
            else:
                message = f"{lengths} differs from {first}"
                conditions[message] = self._call(operators.are_equal, inputs[lengths], inputs[first])
        for name, most in self._tower.plan.row_limits.items():
            message = f"{name} has an entry of more than {most:,}, and no more was tried: strict_bounds"
            conditions[message] = self._call(operators.are_at_most, inputs[name], most)
        taken = self._call(
            operators.require_all, list(inputs.values()), list(conditions.values()), list(conditions)
        )
        return {name: self._call(operator.getitem, taken, place) for place, name in enumerate(inputs)}

    def _sequence(self, group: FeatureGroup) -> dict[str, Node]:
        """Return the tensors of a group of sequences."""
        members = [self._pipeline.feature(name) for name in group.features]
        reads = {each.feature.name: each for each in self._lookups(group)}
        found: dict[str, Node] = {}
        queries = [self._query(each, reads.get(each.name)) for each in members if not each.is_sequence]
        if queries:
            found[f"{group.name}__query"] = self._cat(queries)
        sequences = [each for each in members if each.is_sequence]
        if not sequences:
            return found
        elements = [self._elements(each, reads.get(each.name)) for each in sequences]
        lengths = self._inputs[f"{sequences[0].name}.lengths"]
        if group.kind is GroupKind.SEQUENCE:
            longest = self._call(operators.longest_of, lengths)
            elements = [
                self._call(operators.pad, each, self._offsets_of(f"{feature.name}.lengths"), longest)
                for feature, each in zip(sequences, elements, strict=True)
            ]
        found[f"{group.name}__sequence_length"] = lengths
        found[f"{group.name}__sequence"] = self._cat(elements, dim=-1)
        return found

    def _column(self, column: Column) -> Node:
        """Return one vector per row, (B, D), for a column of row vectors."""
        if not column.is_read:
            return self._call(operators.no_numbers, self._rows_of_call(), column.end - column.first)
        feature, lookup = self._pipeline.feature(column.feature), column.lookup
        if lookup is None:
            return self._inputs[f"{feature.name}.values"]
        offsets = self._offsets_of(f"{feature.name}.lengths")
        if feature.is_sequence and feature.is_multivalued:
            inner = self._offsets_of(f"{feature.name}.key_lengths")
            offsets = self._call(operators.select, offsets, inner)
        is_weighted = feature.weighted and self._group.id_weights is IdWeights.APPLY
        weights = self._inputs[f"{feature.name}.weights"] if is_weighted else None
        return self._pool(lookup, offsets, weights)

    def _query(self, feature: Feature, lookup: Lookup | None) -> Node:
        """Return one vector per row, (B, D), for a feature beside sequences; id weights are ignored here."""
        if lookup is None:
            return self._inputs[f"{feature.name}.values"]
        offsets = self._offsets_of(f"{feature.name}.lengths")
        if feature.is_multivalued:
            return self._pool(lookup, offsets)
        return self._call(operators.first_of_rows, self._rows(lookup), offsets)

    def _elements(self, feature: Feature, lookup: Lookup | None) -> Node:
        """Return one vector per element: (N, D)."""
        if lookup is None:
            return self._inputs[f"{feature.name}.values"]
        if feature.is_multivalued:
            return self._pool(lookup, self._offsets_of(f"{feature.name}.key_lengths"))
        return self._rows(lookup)

    def _ids(self, lookup: Lookup) -> Node:
        """Return the row numbers that a feature's values are or, behind a map, mean."""
        values = self._inputs[f"{lookup.feature.name}.values"]
        if lookup.id_map_path is None:
            return values
        path = ".".join(lookup.id_map_path)
        return self._call(
            operators.map_ids,
            self._tensor(f"{path}.{ID_MAP_IDS}"),
            self._tensor(f"{path}.{ID_MAP_ROWS}"),
            values,
        )

    def _rows(self, lookup: Lookup) -> Node:
        """Return the row of every id in fp32: (V, D)."""
        path, ids = ".".join(lookup.path), self._ids(lookup)
        table = self._table(lookup)
        if isinstance(table, Int8Table | Int4Table):
            parts = self._tensor(f"{path}.codes"), self._tensor(f"{path}.scale_offset"), ids
            if isinstance(table, Int8Table):
                return self._call(operators.int8_rows, *parts)
            return self._call(operators.int4_rows, *parts, table.width)
        return self._call(operators.float_rows, self._tensor(f"{path}.weight"), ids)

    def _pool(self, lookup: Lookup, offsets: Node, weights: Node | None = None) -> Node:
        """Return one vector per bag of ids: (B, D)."""
        is_mean, table = lookup.feature.pooling is Pooling.MEAN, self._table(lookup)
        if isinstance(table, FloatTable) and table.dtype is TableDtype.FP32:
            weight = self._tensor(".".join((*lookup.path, "weight")))
            return self._call(operators.pool_table, weight, self._ids(lookup), offsets, is_mean, weights)
        return self._call(operators.pool_rows, self._rows(lookup), offsets, is_mean, weights)

    def _rows_of_call(self) -> Node:
        """Return an input with an entry, or a row, per row of the call."""
        per_row = (each.name for each in self._tower.plan.inputs if each.shape[0] == BATCH)
        return self._inputs[next(per_row)]

    def _offsets_of(self, lengths: str) -> Node:
        if lengths not in self._offsets:
            self._offsets[lengths] = self._call(operators.offsets_of, self._inputs[lengths])
        return self._offsets[lengths]

    def _cat(self, parts: Sequence[Node], dim: int = 1) -> Node:
        return parts[0] if len(parts) == 1 else self._call(torch.cat, list(parts), dim)

    def _tensor(self, name: str) -> Node:
        return self._graph.get_attr(self._prefix + name)

    def _table(self, lookup: Lookup) -> EmbeddingTable:
        table = self._group.get_submodule(".".join(lookup.path))
        assert isinstance(table, EmbeddingTable)
        return table

    def _lookups(self, group: FeatureGroup) -> list[Lookup]:
        return list(lookups([group], {each.name: each for each in self._pipeline.features}))


def _sum_differs(lengths: str) -> str:
    return f"{lengths} has a negative length, or does not add up to the number of values"
