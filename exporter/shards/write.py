"""A rank's rows written: streamed from the checkpoint in bounded pieces, and quantised on the way."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.read import Checkpoint
from exporter.checkpoint.safetensors import write_safetensors
from exporter.errors import WeightsNotFinite
from exporter.lowering.tables import RowErrors, fuse_rows
from exporter.shards.layout import TableShard

PIECE_BYTES = 32 << 20  # of a table, in memory at a time

OnBytes = Callable[[int, int], None]  # bytes of rows that are written, and of all


@dataclass(frozen=True, kw_only=True)
class WrittenRows:
    """The digest of the file, and the errors of rows of quantised tables, by `TableUse.weight`."""

    sha256: str
    errors: tuple[tuple[str, RowErrors], ...]


def write_rows(
    shares: tuple[TableShard, ...], checkpoint: Checkpoint, local: Path, on_bytes: OnBytes
) -> WrittenRows:
    """Write the rows of all shares to the file `local`.

    Raises:
        CheckpointError: they cannot be read, or one of them is no number.
        TableOutOfRange: a row has numbers that what it is to be kept in cannot hold.
    """
    tensors = {share.table.weight: share.meta for share in shares}
    errors = {share.table.weight: RowErrors() for share in shares if share.is_quantised}
    sha256 = write_safetensors(local, tensors, _values(shares, checkpoint, errors, on_bytes))
    return WrittenRows(sha256=sha256, errors=tuple(errors.items()))


def _values(
    shares: tuple[TableShard, ...], checkpoint: Checkpoint, errors: Mapping[str, RowErrors], on_bytes: OnBytes
) -> Iterator[Tensor]:
    """The rows of all shares in pieces; each is dropped from memory before the next is read."""
    total, done = sum(share.meta.nbytes for share in shares), 0
    for share in shares:
        table, meta = share.table, share.table.meta
        name, per_row = PREFIX + table.weight, meta.nbytes // max(1, meta.shape[0])
        step = max(1, PIECE_BYTES // max(1, per_row))
        for first in range(share.first, share.end, step):
            rows = checkpoint.rows(name, first, min(first + step, share.end))
            if rows.is_floating_point() and not bool(rows.isfinite().all()):
                raise WeightsNotFinite([name])
            if share.is_quantised:
                rows = fuse_rows(rows, share.kept_in, errors[table.weight], name=table.name, first=first)
            yield rows
            done += rows.nbytes
            on_bytes(done, total)
