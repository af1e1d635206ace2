"""Read a rank's rows back from the file that will be sent, and compare every byte of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter.checkpoint.safetensors import SafetensorsCheckpoint
from exporter.checkpoint.tensors import TensorMeta
from exporter.errors import CheckpointUnreadable
from exporter.readback.compare import Found, Place, as_rows, compare_boxes
from exporter.readback.errors import WeightsDiffer
from exporter.readback.expected import Expected
from exporter.readback.tower_weights import TowerWeights
from exporter.reports.table_files import TablesFile
from exporter.shards.layout import RankTables, TableShard, rows_path


def read_back_rows(
    shards: Sequence[TableShard], local: Path, weights: TowerWeights, *, title: str
) -> tuple[int, int]:
    """Compare every row of a rank's file, and its parts of maps of ids, with the checkpoint's.

    Quantised rows are compared with the checkpoint's rows quantised anew. Returns the number of rows, and of
    bytes.

    Raises:
        WeightsDiffer: names the table, the row, the column, and both values.
    """
    place = Place(title=title, file=local.name)
    try:
        file = SafetensorsCheckpoint([local])
    except CheckpointUnreadable as error:
        raise WeightsDiffer(f"{title}: {error.message}", where=local.name) from error
    wanted: dict[str, TensorMeta] = {}
    for shard in shards:
        wanted |= {shard.table.weight: shard.meta} | shard.id_map_tensors
    if odd := sorted(
        name for name in wanted.keys() | file.tensors() if wanted.get(name) != file.tensors().get(name)
    ):
        raise WeightsDiffer(
            f"{title}: {local.name} has {file.tensors().get(odd[0], 'no rows')} of {odd[0]}, and the rank's "
            f"are {wanted.get(odd[0], 'none')}",
            where=odd[0],
        )
    rows = compared = 0
    for shard in shards:
        table = shard.table
        found = {table.weight: _find(file, table.weight)}
        expected = weights.expect_table(table.weight, shard.kept_in, table.trained)
        _compare(found, expected, shard, place)
        if table.id_map is not None:
            id_map = {name: _find(file, name) for name in shard.id_map_tensors}
            _compare(id_map, weights.expect_map(table.id_map), shard, place)
            found |= id_map
        compared += sum(each.raw.numel() for each in found.values())
        rows += shard.end - shard.first
    return rows, compared


def _compare(found: Mapping[str, Found], expected: Expected, shard: TableShard, place: Place) -> None:
    boxes = expected.boxes(shard.first, shard.end)
    compare_boxes(found, boxes, place, expected.reference, first_row=shard.first)


def _find(file: SafetensorsCheckpoint, name: str) -> Found:
    [piece] = file.pieces(name)
    return Found(
        raw=as_rows(piece.raw, piece.dtype.itemsize), dtype=piece.dtype, is_flat=len(piece.offset) < 2
    )


def require_compared(index: TablesFile, parts: Sequence[RankTables]) -> None:
    """Require that an index names, of every table, exactly the rows that the ranks compared in their files.

    Raises:
        WeightsDiffer: names the table and the rows.
    """
    compared = {
        (shard.table.weight, shard.first, shard.end, each.file.path, each.file.sha256): shard
        for each in parts
        for shard in each.shards
        if each.file is not None and each.file.path == rows_path(each.tower, each.rank, len(parts))
    }
    named = set()
    for table in index.tables:
        for rows in table.shards:
            key = (table.tensor, rows.first, rows.end, rows.file, rows.sha256)
            shard = compared.get(key)
            if shard is None:
                raise WeightsDiffer(
                    f"the index of the {index.tower} tower says that rows {rows.first} to {rows.end - 1} of "
                    f"{table.tensor} are in {rows.file}, where no rank has compared them",
                    where=table.tensor,
                )
            kept = (table.rows, table.width, table.kept_in, table.id_map, table.name, table.dtype)
            use, dtype = shard.table, str(shard.meta.dtype).removeprefix("torch.")
            if kept != (*use.meta.shape, shard.kept_in, use.id_map, use.name, dtype):
                raise WeightsDiffer(
                    f"the index of the {index.tower} tower describes {table.tensor} as another table than "
                    "the one that was written",
                    where=table.tensor,
                )
            named.add(key)
    if left := sorted(compared.keys() - named):
        weight, first, end, path, _ = left[0]
        raise WeightsDiffer(
            f"the index of the {index.tower} tower lacks rows {first} to {end - 1} of {weight}, in {path}",
            where=weight,
        )
