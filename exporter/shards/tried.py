"""What a rank wrote, tried: lookups in its own rows as written, in all others as the checkpoint has them."""

from dataclasses import replace
from pathlib import Path

from exporter.blueprint import Blueprint
from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.read import Checkpoint
from exporter.checkpoint.tensors import Piece
from exporter.data.batch import NamedBatch, contradicting_batches
from exporter.data.sweep import agreeing_batches
from exporter.errors import DimPlanViolated, VerificationFailed
from exporter.manifest import LookupReport
from exporter.models.table_uses import PiecesOf, TableUse, look_up_in_pieces
from exporter.shards.lookup import piece_of
from exporter.shards.made import Share
from exporter.sources import open_rows
from exporter.spec import ExportSpec
from exporter.towers.lookup import LookUp, lookup_of
from exporter.towers.tower import Tower
from exporter.verify.numerics import FP32_TOLERANCE, compare_runs


def as_written(shares: tuple[Share, ...], checkpoint: Checkpoint, local: Path) -> PiecesOf:
    """Tables with the rows of `local` in their place, and all others as the checkpoint has them."""
    own = {share.table.weight: share for share in shares}

    def pieces(table: TableUse) -> tuple[Piece, ...]:
        share, stored = own.get(table.weight), checkpoint.pieces(PREFIX + table.weight)
        if share is None:
            return stored
        others = (part for piece in stored for part in piece.outside(share.first, share.end))
        return (*others, piece_of(local, table.weight, share.first, share.meta))

    return pieces


def tried(tower: Tower, blueprint: Blueprint, as_written: PiecesOf, spec: ExportSpec) -> LookupReport:
    """Lookups in what was written against eager ones, in every case that a gate tries."""
    written = blueprint.build()
    look_up_in_pieces(written.module, as_written, lambda table: spec.tables.dtype_of(table.name))
    eager, reference = (lookup_of(each, max_batch_size=spec.max_batch_size) for each in (tower, written))
    rows, _ = open_rows(replace(blueprint.planned, item_id_column=None), spec)
    agreeing = list(agreeing_batches(rows, tower.plan))
    contradicting = list(contradicting_batches(rows, tower.plan))
    return LookupReport(
        cases=len(agreeing) + len(contradicting),
        refused=sum(_both_refuse(eager, reference, each, tower) for each in contradicting),
        largest_difference=max(_difference(eager, reference, each, tower) for each in agreeing),
    )


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
