"""Write a rank's rows to a file, streamed from the checkpoint in bounded pieces and quantised on the way."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from exporter.checkpoint.errors import WeightsNotFinite
from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.read import Checkpoint
from exporter.checkpoint.safetensors import write_safetensors
from exporter.checkpoint.tensors import TensorMeta
from exporter.lowering.tables import RowErrors, fuse_rows
from exporter.shards.layout import TableShard

PIECE_BYTES = 32 << 20  # bytes of a table that are in memory at a time

OnBytes = Callable[[int, int], None]  # bytes written so far, and in all


@dataclass(frozen=True, kw_only=True)
class WrittenRows:
    """The digest of the file, and the errors of rows of quantised tables, by `TableUse.weight`."""

    sha256: str
    errors: tuple[tuple[str, RowErrors], ...]


def write_rows(
    shards: tuple[TableShard, ...],
    checkpoint: Checkpoint,
    id_maps: Mapping[str, Tensor],
    local: Path,
    on_bytes: OnBytes,
) -> WrittenRows:
    """Write the rows of all shards to the file `local`, and their parts of the tables' maps of ids.

    Raises:
        CheckpointError: rows cannot be read, or contain NaN or infinity.
        TableOutOfRange: a row has numbers outside the range of the dtype it is quantised to.
    """
    tensors: dict[str, TensorMeta] = {}
    for shard in shards:
        tensors |= {shard.table.weight: shard.meta} | shard.id_map_tensors
    errors = {shard.table.weight: RowErrors() for shard in shards if shard.is_quantised}
    sha256 = write_safetensors(local, tensors, _values(shards, checkpoint, id_maps, errors, on_bytes))
    return WrittenRows(sha256=sha256, errors=tuple(errors.items()))


def _values(
    shards: tuple[TableShard, ...],
    checkpoint: Checkpoint,
    id_maps: Mapping[str, Tensor],
    errors: Mapping[str, RowErrors],
    on_bytes: OnBytes,
) -> Iterator[Tensor]:
    """Yield the rows of all shards in pieces, each table's before its map; each piece is freed early."""
    total, done = sum(shard.meta.nbytes for shard in shards), 0
    for shard in shards:
        table, meta = shard.table, shard.table.meta
        name, per_row = PREFIX + table.weight, meta.nbytes // max(1, meta.shape[0])
        step = max(1, PIECE_BYTES // max(1, per_row))
        for first in range(shard.first, shard.end, step):
            rows = checkpoint.rows(name, first, min(first + step, shard.end))
            if rows.is_floating_point() and not bool(rows.isfinite().all()):
                raise WeightsNotFinite([name])
            if shard.is_quantised:
                rows = fuse_rows(rows, shard.kept_in, errors[table.weight], name=table.name, first=first)
            rows = rows.to(shard.meta.dtype)
            yield rows
            done += rows.nbytes
            on_bytes(done, total)
        for name in shard.id_map_tensors:
            yield id_maps[name][shard.first : shard.end]
