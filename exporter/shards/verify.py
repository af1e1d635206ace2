"""What a rank wrote, tried: lookups in its own rows as written, in all others as the checkpoint has them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.read import Checkpoint
from exporter.checkpoint.tensors import Piece
from exporter.construction.blueprint import Blueprint
from exporter.construction.sources import open_rows
from exporter.data.batch import NamedBatch, contradicting_batches
from exporter.data.sweep import agreeing_batches
from exporter.errors import DimPlanViolated, VerificationFailed
from exporter.manifest import LookupReport
from exporter.models.embedding.table_uses import TableUse, look_up_in_pieces
from exporter.models.embedding.tables import LOW_TABLES
from exporter.shards.layout import TableShard
from exporter.shards.lookup import RowFiles
from exporter.spec import ExportSpec
from exporter.towers.lookup import LookUp, build_eager_lookup
from exporter.towers.tower import Tower
from exporter.verify.numerics import FP32_TOLERANCE, compare_runs

_DRAWN = 30  # of a rank's rows of a table


class WrittenShards:
    """What a rank wrote to a file, and the checkpoint that it read."""

    def __init__(self, shares: tuple[TableShard, ...], checkpoint: Checkpoint, local: Path) -> None:
        self._shares, self._checkpoint, self._local = shares, checkpoint, local
        self._files = RowFiles()

    def pieces(self, table: TableUse) -> tuple[Piece, ...]:
        """A table with the file's rows in their place, and all others as the checkpoint has them."""
        stored = self._checkpoint.pieces(PREFIX + table.weight)
        share = next((share for share in self._shares if share.table.weight == table.weight), None)
        if share is None:
            return stored
        others = (part for piece in stored for part in piece.outside(share.first, share.end))
        return (*others, self._own(share))

    def own_rows(self) -> Iterator[tuple[TableUse, int, Tensor, Tensor]]:
        """Some rows of the rank's own: their table, their number, what is expected and what was written.

        Expected are the checkpoint's, each read by itself: nothing of a lookup in pieces is needed for them.
        """
        for share in self._shares:
            piece = self._own(share)
            for row in _sample_row_numbers(share.first, share.end):
                expected = self._checkpoint.rows(PREFIX + share.table.weight, row, row + 1)
                found = piece.rows(torch.tensor([row - share.first]))
                if share.is_quantised:
                    low = LOW_TABLES[share.kept_in]
                    width = share.table.meta.shape[1]
                    expected, found = (low.restored(each, width) for each in (low.fuse(expected), found))
                yield share.table, row, F.embedding(torch.tensor([0]), expected), found

    def _own(self, share: TableShard) -> Piece:
        return self._files.piece(self._local, share.table.weight, share.first, share.meta)


def _sample_row_numbers(first: int, end: int) -> list[int]:
    """The first, the last, and some drawn between: the same whenever it is asked for."""
    drawn = torch.randint(first, end, (_DRAWN,), generator=torch.Generator().manual_seed(first))
    return sorted({first, *drawn.tolist(), end - 1})


def verify_lookups(
    tower: Tower, blueprint: Blueprint, written: WrittenShards, spec: ExportSpec
) -> LookupReport:
    """Lookups in what was written against eager ones, in every case that a gate tries; and rows of its own.

    A case looks up what sample rows name, which may be few of the rank's rows, or none.

    Raises:
        VerificationFailed: what was written is something else.
    """
    own = [_row_difference(tower, *each) for each in written.own_rows()]
    mapped = blueprint.build()
    look_up_in_pieces(mapped.module, written.pieces, lambda table: spec.tables.dtype_of(table.name))
    eager, reference = (
        build_eager_lookup(each, max_batch_size=spec.max_batch_size) for each in (tower, mapped)
    )
    rows, _ = open_rows(replace(blueprint.planned, item_id_column=None), spec)
    agreeing = list(agreeing_batches(rows, tower.plan))
    contradicting = list(contradicting_batches(rows, tower.plan))
    return LookupReport(
        cases=len(agreeing) + len(contradicting),
        refused=sum(_both_refuse(eager, reference, each, tower) for each in contradicting),
        own_rows=len(own),
        largest_difference=max(*own, *(_difference(eager, reference, each, tower) for each in agreeing)),
    )


def _row_difference(tower: Tower, table: TableUse, row: int, expected: Tensor, found: Tensor) -> float:
    difference = compare_runs({table.name: expected}, {table.name: found})
    if not difference.within(FP32_TOLERANCE):
        raise VerificationFailed(
            f"{tower.title}: row {row} of table {table.name}, as written, is not the checkpoint's",
            where=table.name,
        )
    return difference.largest


def _difference(eager: LookUp, reference: LookUp, batch: NamedBatch, tower: Tower) -> float:
    """How far the two are apart; a row that is no number is the failure of the rank that has it."""
    difference = compare_runs(eager(batch.inputs), reference(batch.inputs))
    if not difference.within(FP32_TOLERANCE):
        how = difference.problem or f"differs by {difference.largest:.3g} at scale {difference.scale:.3g}"
        raise VerificationFailed(
            f"{tower.title}: {batch.name}: {difference.output}, looked up in the rows as written, is not "
            f"what eager looks up: {how}",
            where=batch.name,
        )
    return difference.largest


def _both_refuse(eager: LookUp, reference: LookUp, batch: NamedBatch, tower: Tower) -> bool:
    """Whether eager refuses the inputs; VerificationFailed where only one of the two does."""
    expected, found = _refuses(eager, batch), _refuses(reference, batch)
    if expected != found:
        who = "eager" if expected else "the lookup in the rows as written"
        raise VerificationFailed(f"{tower.title}: {batch.name}: only {who} refuses", where=batch.name)
    return expected


def _refuses(lookup: LookUp, batch: NamedBatch) -> bool:
    try:
        lookup(batch.inputs)
    except (RuntimeError, DimPlanViolated):
        return True
    return False
