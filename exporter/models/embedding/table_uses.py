"""The embedding tables of a tower: which there are, who reads them, and how they are looked up in pieces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from exporter.checkpoint.tensors import Piece, TensorMeta
from exporter.dtypes import TableDtype
from exporter.models.embedding.embedding_group import EmbeddingGroup
from exporter.models.embedding.table_in_pieces import TableInPieces


@dataclass(frozen=True, kw_only=True)
class TableUse:
    """A table of a tower."""

    module: str  # its path in the tower
    meta: TensorMeta
    features: tuple[str, ...]  # that look it up

    @property
    def name(self) -> str:
        """As the config has it."""
        return self.module.rpartition(".")[2]

    @property
    def weight(self) -> str:
        """Its tensor, as the checkpoint has it behind its prefix."""
        return f"{self.module}.weight"


PiecesOf = Callable[[TableUse], Sequence[Piece]]


def list_tables(root: nn.Module) -> tuple[TableUse, ...]:
    """Every table, by the order of its path, which is the same wherever the tower is built."""
    found: dict[str, TableUse] = {}
    for path, group in root.named_modules():
        if not isinstance(group, EmbeddingGroup):
            continue
        for table, features in group.tables.items():
            module = f"{path}.{table}" if path else table
            weight = group.get_parameter(f"{table}.weight")
            meta = TensorMeta(shape=tuple(weight.shape), dtype=weight.dtype)
            found[module] = TableUse(module=module, meta=meta, features=features)
    return tuple(found[module] for module in sorted(found))


def look_up_in_pieces(
    root: nn.Module,
    pieces_of: PiecesOf,
    kept_in: Callable[[TableUse], TableDtype] = lambda table: TableDtype.FP32,
) -> None:
    """Let every table be looked up in pieces from now on; the module then holds none of their rows."""
    for table in list_tables(root):
        root.set_submodule(table.module, TableInPieces(table.meta, pieces_of(table), kept_in(table)))
