"""Reference lookup in the mapped shards of an artifact, whose results a dense package takes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from exporter.artifact.read import check_path, describe_first_error
from exporter.checkpoint.mapped_tensor import room_for
from exporter.checkpoint.safetensors import SafetensorsCheckpoint
from exporter.checkpoint.tensors import Piece, TensorMeta
from exporter.config.features.tables import take_rows
from exporter.config.schema import TowerConfig
from exporter.dims.plan import DimPlan
from exporter.errors import CheckpointUnreadable, InvalidArtifact
from exporter.manifest import Manifest, TowerEntry
from exporter.models.embedding.id_map import fill_id_maps
from exporter.models.embedding.table_uses import TableUse, look_up_in_pieces, size_dynamic_tables
from exporter.models.embedding.tables import meta_of_fused_rows
from exporter.models.registry import build_tower
from exporter.reports.table_files import ShardedTable, TablesFile
from exporter.shards.layout import TABLES_NAME
from exporter.towers.lookup import LookUp, build_eager_lookup

_HINT = "export again; the artifact was changed or made by another version"


def read_tables(path: Path) -> TablesFile:
    """Read `tables.json`; raise InvalidArtifact if it is not valid."""
    try:
        return TablesFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise InvalidArtifact(
            f"{path.name} does not describe tables: {describe_first_error(error)}",
            hint=_HINT,
            where=path.name,
        ) from error


def open_shard_lookup(
    manifest: Manifest, entry: TowerEntry, config: TowerConfig, plan: DimPlan, root: Path
) -> LookUp | None:
    """Open the lookup of a published tower in its shards, which are below `root`.

    Return None for a tower whose packages do the lookups.

    Raises:
        InvalidArtifact: a table that the tower reads is missing, incomplete or of another shape.
    """
    if entry.tables is None:
        return None
    tables = read_tables(root / entry.tables.index.path)
    id_weights = entry.id_weights or config.options.id_weights
    config = replace(config, options=replace(config.options, id_weights=id_weights))
    return build_lookup(tables, config, plan, root, max_batch_size=manifest.max_batch_size)


def build_lookup(
    tables: TablesFile, config: TowerConfig, plan: DimPlan, root: Path, *, max_batch_size: int
) -> LookUp:
    """Build the lookup of the tower of `config`, which also says how ids are weighted, in `tables`."""
    by_tensor, files = {table.tensor: table for table in tables.tables}, RowFiles()
    shapes = {table.tensor: (table.rows, table.width) for table in tables.tables}
    config = replace(config, pipeline=take_rows(config.pipeline, shapes))
    with torch.device("meta"):  # only its lookups will be run, on the mapped rows
        tower = build_tower(config, plan)
        size_dynamic_tables(tower.module, shapes)
    look_up_in_pieces(
        tower.module,
        lambda table: _pieces(table, by_tensor.get(table.weight), root, files),
        lambda table: by_tensor[table.weight].kept_in,
    )
    by_map = {table.id_map: table for table in tables.tables}
    fill_id_maps(tower.module, lambda name: _join(name, by_map.get(name.rpartition(".")[0]), root, files))
    return build_eager_lookup(tower, max_batch_size=max_batch_size)


def _join(name: str, table: ShardedTable | None, root: Path, files: "RowFiles") -> Tensor:
    """Return a tensor of a map, put together from the files of its table's rows."""
    if table is None:
        raise _invalid_tables(f"there is no map of ids {name}, which the tower reads")
    whole = room_for(TensorMeta(shape=(table.rows,), dtype=torch.int64))
    for shard in table.shards:
        meta = TensorMeta(shape=(shard.end - shard.first,), dtype=torch.int64)
        piece = files.piece(root / check_path(shard.file), name, shard.first, meta)
        whole[shard.first : shard.end].view(torch.uint8).copy_(piece.raw)
    return whole


def _pieces(table: TableUse, found: ShardedTable | None, root: Path, files: "RowFiles") -> tuple[Piece, ...]:
    if found is None:
        raise _invalid_tables(f"there is no table {table.weight}, which the tower reads")
    if (found.rows, found.width) != table.meta.shape:
        raise _invalid_tables(
            f"table {found.name} has {found.rows} rows of {found.width}, and the tower reads {table.meta}"
        )
    pieces, end = [], 0
    for shard in found.shards:
        if shard.first != end:
            break
        end = shard.end
        rows = TensorMeta(shape=(shard.end - shard.first, found.width), dtype=table.meta.dtype)
        meta = meta_of_fused_rows(rows, found.kept_in)
        pieces.append(files.piece(root / check_path(shard.file), found.tensor, shard.first, meta))
    if end != found.rows:
        raise _invalid_tables(f"table {found.name} has no row {end} in its shards, of {found.rows}")
    return tuple(pieces)


def _invalid_tables(problem: str) -> InvalidArtifact:
    return InvalidArtifact(f"{TABLES_NAME}: {problem}", hint=_HINT, where=TABLES_NAME)


class RowFiles:
    """Files of rows that ranks wrote; each is opened and mapped once, for all tables in it."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[SafetensorsCheckpoint, Mapping[str, TensorMeta]]] = {}

    def piece(self, path: Path, tensor: str, first: int, meta: TensorMeta) -> Piece:
        """Map the rows of a table from `first` on; raise InvalidArtifact if the file does not have them."""
        if path not in self._files:
            self._files[path] = _open_file(path)
        file, tensors = self._files[path]
        found = tensors.get(tensor)
        if found != meta:
            raise InvalidArtifact(
                f"{path.name} has {found or 'nothing'} of {tensor} instead of {meta}",
                hint=_HINT,
                where=path.name,
            )
        [piece] = file.pieces(tensor)
        return Piece(offset=(first, *piece.offset[1:]), raw=piece.raw, dtype=piece.dtype)


def _open_file(path: Path) -> tuple[SafetensorsCheckpoint, Mapping[str, TensorMeta]]:
    try:
        file = SafetensorsCheckpoint([path])
    except CheckpointUnreadable as error:
        raise InvalidArtifact(error.message, hint=_HINT, where=path.name) from error
    return file, file.tensors()
