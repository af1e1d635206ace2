"""Weights of two published towers: which are tables, and how far all others moved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import torch
from torch import Tensor

from exporter.aoti.load import PackageContents, read_contents
from exporter.artifact.read import check_path
from exporter.checkpoint.keymap import ID_MAP_IDS, ID_MAP_ROWS
from exporter.checkpoint.mapped_tensor import room_for
from exporter.checkpoint.tensors import TensorMeta
from exporter.comparison.row_values import PIECE, PackagedTable, PublishedTable, RowsOfIds, ShardedRows
from exporter.dtypes import TableDtype
from exporter.errors import InvalidArtifact
from exporter.manifest import TableEntry, TowerEntry
from exporter.models.embedding.tables import FLOATS, meta_of_fused_rows
from exporter.options.layout import PackageKind
from exporter.redaction import shorten
from exporter.reports.comparison import LONGEST_TEXT, MOST_WEIGHTS, WeightDiff, Weights
from exporter.reports.table_files import ShardedTable
from exporter.shards.lookup import RowFiles, read_tables
from exporter.torcheasyrec.scripted_file import read_scripted

_LEAST_ROWS = 1000  # of a matrix that counts as a table where the manifest names none
_SPLIT = "served."  # in front of the names of weights where the tower was split, see `exporter.towers.split`
_PARTS = ("weight", "codes", "scale_offset")


@dataclass(frozen=True, kw_only=True)
class TowerContents:
    """Content of a fetched tower: code by package, tables by path, and other weights by name."""

    code: Mapping[str, str]
    tables: Mapping[str, PublishedTable]
    weights: Mapping[str, Tensor]


def read_tower(entry: TowerEntry, root: Path) -> TowerContents:
    """Open the packages, and shards, of a tower whose files lie below `root`.

    Raises:
        InvalidArtifact: a file is not what the manifest says.
    """
    refs = {"package": entry.package}
    if entry.sparse is not None:
        refs = {"sparse package": entry.sparse.package, "dense package": entry.package}
    contents = {
        name: read_scripted(root / check_path(ref.path))
        if entry.sparse and ref is entry.sparse.package and entry.sparse.kind is PackageKind.TORCHSCRIPT
        else read_contents(root / check_path(ref.path))
        for name, ref in refs.items()
    }
    weights = _all_weights(contents)
    tables: dict[str, PublishedTable] = {}
    if entry.tables is not None:
        tables |= read_sharded_tables(root, entry.tables.index.path)
    tables |= take_tables([table for table in entry.embeddings if table.path not in tables], weights)
    if entry.declaration is not None:  # its manifest names no tables
        tables |= _large_matrices(weights)
    return TowerContents(
        code={
            f"{package}: {kind}": digest
            for package, each in contents.items()
            for kind, digest in each.code.items()
        },
        tables=tables,
        weights=weights,
    )


def _all_weights(contents: Mapping[str, PackageContents]) -> dict[str, Tensor]:
    """Return the weights of all packages by their names in the tower, however it was split."""
    return {
        name.removeprefix(_SPLIT): tensor
        for each in contents.values()
        for name, tensor in each.weights.items()
    }


def take_tables(entries: Sequence[TableEntry], weights: dict[str, Tensor]) -> dict[str, PublishedTable]:
    """Take the tables of these entries out of `weights`, and the maps of ids in front of them.

    Raises:
        InvalidArtifact: a table is not among the weights, or of another size.
    """
    maps = _take_id_maps(weights)
    return {table.path: _take_table(table, weights, _map_of(table, maps)) for table in entries}


def _take_id_maps(weights: dict[str, Tensor]) -> dict[str, RowsOfIds]:
    """Return the maps of ids by their paths."""
    found = {}
    for name in [name for name in weights if name.endswith(f".{ID_MAP_IDS}")]:
        path = name.removesuffix(f".{ID_MAP_IDS}")
        ids_R, rows_R = weights.pop(name), weights.pop(f"{path}.{ID_MAP_ROWS}", None)
        if rows_R is not None:
            found[path] = RowsOfIds(ids=ids_R, rows=rows_R)
    return found


def _map_of(table: TableEntry, maps: Mapping[str, RowsOfIds]) -> RowsOfIds | None:
    """Return the map whose path ends in the table's name and begins most like the table's path."""
    named = [path for path in maps if path.rpartition(".")[2] == table.name]
    return maps[max(named, key=lambda path: _count_shared(path, table.path))] if named else None


def _count_shared(path: str, other: str) -> int:
    """Return the number of parts with which both paths begin."""
    pairs = zip(path.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _take_table(table: TableEntry, weights: dict[str, Tensor], ids: RowsOfIds | None) -> PublishedTable:
    found = {part: weights.pop(f"{table.path}.{part}", None) for part in _PARTS}
    tensors = {part: tensor for part, tensor in found.items() if tensor is not None}
    if not tensors or any(tensor.shape[0] != table.rows for tensor in tensors.values()):
        raise InvalidArtifact(
            f"the packages have no table {table.path} of {table.rows:,} rows, which the manifest names",
            hint="export again; the artifact was changed or made by another version",
            where=table.path,
        )
    return PackagedTable(
        name=table.name,
        path=table.path,
        rows=table.rows,
        width=table.width,
        dtype=table.dtype,
        ids=ids,
        tensors=tensors,
    )


def _large_matrices(weights: dict[str, Tensor]) -> dict[str, PublishedTable]:
    """Take long matrices of floating-point numbers out of `weights`, as tables."""
    kinds = {floats: dtype for dtype, floats in FLOATS.items()}
    names = [
        name
        for name, tensor in weights.items()
        if tensor.dim() == 2
        and tensor.dtype in kinds
        and tensor.shape[0] >= max(_LEAST_ROWS, tensor.shape[1])
    ]
    found: dict[str, PublishedTable] = {}
    for name in names:
        tensor = weights.pop(name)
        found[name] = PackagedTable(
            name=name,
            path=name,
            rows=tensor.shape[0],
            width=tensor.shape[1],
            dtype=kinds[tensor.dtype],
            tensors={"weight": tensor},
        )
    return found


def read_sharded_tables(root: Path, index: str) -> dict[str, PublishedTable]:
    """Open the tables whose shards a `tables.json` below `root` names, by path.

    Raises:
        InvalidArtifact: a file does not have the rows that it should have.
    """
    files, found = RowFiles(), {}
    for table in read_tables(root / check_path(index)).tables:
        pieces = []
        for shard in table.shards:
            dtype = FLOATS.get(table.kept_in, FLOATS[TableDtype.FP32])
            meta = TensorMeta(shape=(shard.end - shard.first, table.width), dtype=dtype)
            meta = meta_of_fused_rows(meta, table.kept_in)
            pieces.append(files.piece(root / check_path(shard.file), table.tensor, shard.first, meta))
        path = table.tensor.removesuffix(".weight")
        found[path] = ShardedRows(
            name=table.name,
            path=path,
            rows=table.rows,
            width=table.width,
            dtype=table.kept_in,
            ids=_sharded_map(files, table, root),
            pieces=pieces,
        )
    return dict(found)


def _sharded_map(files: RowFiles, table: ShardedTable, root: Path) -> RowsOfIds | None:
    """Put a map of ids together from the files of its table's rows, in unnamed files if it is large."""
    if table.id_map is None:
        return None
    parts = {}
    for name in (ID_MAP_IDS, ID_MAP_ROWS):
        whole = room_for(TensorMeta(shape=(table.rows,), dtype=torch.int64))
        for shard in table.shards:
            meta = TensorMeta(shape=(shard.end - shard.first,), dtype=torch.int64)
            piece = files.piece(root / check_path(shard.file), f"{table.id_map}.{name}", shard.first, meta)
            whole[shard.first : shard.end].view(torch.uint8).copy_(piece.raw)
        parts[name] = whole
    # Every rank has sorted its own part. Servers sort them together in the same way.
    ids_R, order_R = torch.sort(parts[ID_MAP_IDS], stable=True)
    return RowsOfIds(ids=ids_R, rows=parts[ID_MAP_ROWS][order_R])


def compare_weights(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> Weights:
    """Compare weights by their names; those that moved furthest come first."""
    diffs = [_compare_weight(name, old.get(name), new.get(name)) for name in dict.fromkeys((*old, *new))]
    changed = [diff for diff in diffs if diff.numbers_changed or diff.old_shape != diff.new_shape]
    changed.sort(key=lambda diff: (diff.relative is not None, -(diff.relative or 0), diff.name))
    return Weights(listed=tuple(changed[:MOST_WEIGHTS]), total=len(diffs), changed=len(changed))


def _compare_weight(name: str, old: Tensor | None, new: Tensor | None) -> WeightDiff:
    diff = WeightDiff(
        name=shorten(name, LONGEST_TEXT),
        old_shape=None if old is None else tuple(old.shape),
        new_shape=None if new is None else tuple(new.shape),
    )
    if old is None or new is None or old.shape != new.shape:
        return diff
    changed, moved, norm, largest = 0, 0.0, 0.0, 0.0
    flat_old, flat_new, step = old.reshape(-1), new.reshape(-1), PIECE // 8
    for first in range(0, len(flat_old), step):
        one, other = flat_old[first : first + step].double(), flat_new[first : first + step].double()
        changed += int(((one != other) & ~(one.isnan() & other.isnan())).sum())
        distance = (other - one).abs()
        moved += float((distance**2).sum())
        norm += float((one**2).sum())
        largest = max(largest, float(distance.max()))
    relative = (moved / norm) ** 0.5 if norm else float(moved > 0)
    finite = torch.tensor([relative, largest]).isfinite().all()
    return diff.model_copy(
        update={
            "numbers_changed": changed,
            "relative": relative if finite else None,
            "largest": largest if finite else None,
        }
    )
