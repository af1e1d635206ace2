"""Embedding tables of a tower, the features that read them, and their replacement by tables in pieces."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from exporter.checkpoint.tensors import Piece, TensorMeta
from exporter.config.schema import ROWS_OF_CHECKPOINT
from exporter.dtypes import TableDtype
from exporter.models.embedding.embedding_group import EmbeddingGroup
from exporter.models.embedding.id_map import IdMap
from exporter.models.embedding.table_in_pieces import TableInPieces
from exporter.models.embedding.tables import FloatTable, dtype_of_floats

_SAMPLED_IDS = 4096  # of a map


@dataclass(frozen=True, kw_only=True)
class TableUse:
    """One embedding table of a tower."""

    module: str  # path of the table's module in the tower
    meta: TensorMeta
    features: tuple[str, ...]  # names of the features that look it up
    id_map: str | None = None  # path of the map that turns their ids into row numbers

    @property
    def name(self) -> str:
        """Name of the table in the config."""
        return self.module.rpartition(".")[2]

    @property
    def trained(self) -> TableDtype:
        """Dtype of its rows in the checkpoint."""
        return dtype_of_floats(self.meta.dtype)

    @property
    def weight(self) -> str:
        """Name of the table's tensor in the checkpoint, without the prefix."""
        return f"{self.module}.weight"


PiecesOf = Callable[[TableUse], Sequence[Piece]]


def list_tables(root: nn.Module) -> tuple[TableUse, ...]:
    """Return every table, sorted by path, so that the order is equal wherever the tower is built."""
    found: dict[str, TableUse] = {}
    for path, group in root.named_modules():
        if not isinstance(group, EmbeddingGroup):
            continue
        for table, features in group.tables.items():
            module = f"{path}.{table}" if path else table
            weight = group.get_parameter(f"{table}.weight")
            meta = TensorMeta(shape=tuple(weight.shape), dtype=weight.dtype)
            id_map = group.id_maps.get(table)
            found[module] = TableUse(
                module=module,
                meta=meta,
                features=features,
                id_map=f"{path}.{id_map}" if path and id_map else id_map,
            )
    return tuple(found[module] for module in sorted(found))


def known_ids(root: nn.Module) -> dict[str, NDArray[np.int64]]:
    """Return ids that the maps of a loaded tower know, by feature, as `IdMap.sample_ids` draws them."""
    known: dict[str, NDArray[np.int64]] = {}
    for group in root.modules():
        if isinstance(group, EmbeddingGroup):
            for table, id_map in group.id_maps.items():
                ids = group.id_map(id_map).sample_ids(_SAMPLED_IDS).numpy()
                known |= dict.fromkeys(group.tables[table], ids)
    return known


def look_up_in_pieces(
    root: nn.Module,
    pieces_of: PiecesOf,
    kept_in: Callable[[TableUse], TableDtype] = lambda table: table.trained,
) -> None:
    """Replace every table by one that is looked up in pieces; the module then holds no rows."""
    for table in list_tables(root):
        root.set_submodule(table.module, TableInPieces(table.meta, pieces_of(table), kept_in(table)))


def size_dynamic_tables(root: nn.Module, shapes: Mapping[str, Sequence[int]]) -> None:
    """Give tables that grew in training their rows, from the shapes of tensors by their names in `root`."""
    for table in list_tables(root):
        rows, width = table.meta.shape
        if rows == ROWS_OF_CHECKPOINT and table.id_map is not None and table.weight in shapes:
            rows = shapes[table.weight][0]
            root.set_submodule(table.module, FloatTable(torch.empty((rows, width), dtype=table.meta.dtype)))
            root.set_submodule(table.id_map, IdMap(rows))
