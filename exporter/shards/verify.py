"""Verify the rows that a rank wrote, by lookups in them and in all other rows of the checkpoint."""

import logging
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.mapped_tensor import room_for
from exporter.checkpoint.read import Checkpoint
from exporter.checkpoint.tensors import Piece, TensorMeta
from exporter.construction.blueprint import Blueprint
from exporter.construction.sources import open_rows
from exporter.data.rows import NamedBatch
from exporter.errors import DimPlanViolated, VerificationFailed
from exporter.manifest import LookupReport
from exporter.models.embedding.id_map import fill_id_maps, id_map_tensors
from exporter.models.embedding.table_uses import TableUse, known_ids, look_up_in_pieces
from exporter.shards.layout import TableShard
from exporter.shards.lookup import RowFiles
from exporter.spec import ExportSpec
from exporter.towers.lookup import LookUp, build_eager_lookup
from exporter.towers.tower import Tower
from exporter.verify.cases import make_cases
from exporter.verify.numerics import FP32_TOLERANCE, compare_runs

log = logging.getLogger(__name__)


class WrittenShards:
    """The shards that a rank wrote to a file, and the checkpoint that it read."""

    def __init__(self, shards: tuple[TableShard, ...], checkpoint: Checkpoint, local: Path) -> None:
        self._shares, self._checkpoint, self._local = shards, checkpoint, local
        self._files = RowFiles()

    def pieces(self, table: TableUse) -> tuple[Piece, ...]:
        """Return the pieces of a table: the rank's own rows from the file, all others from the checkpoint."""
        stored = self._checkpoint.pieces(PREFIX + table.weight)
        shard = next((shard for shard in self._shares if shard.table.weight == table.weight), None)
        if shard is None:
            return stored
        others = (part for piece in stored for part in piece.outside(shard.first, shard.end))
        return (*others, self._own(shard))

    def id_map(self, name: str, expected: Tensor) -> Tensor:
        """Return a tensor of a map with the rank's own part from the file.

        Raises:
            VerificationFailed: that part is not as expected.
        """
        meta = TensorMeta(shape=tuple(expected.shape), dtype=expected.dtype)
        read = room_for(meta).copy_(expected)
        for shard in self._shares:
            if (own := shard.id_map_tensors.get(name)) is not None:
                piece = self._files.piece(self._local, name, shard.first, own)
                read[shard.first : shard.end].view(torch.uint8).copy_(piece.raw)
        if not torch.equal(read, expected):
            raise VerificationFailed(f"{name}, as written, is not the checkpoint's", where=name)
        return read

    def _own(self, shard: TableShard) -> Piece:
        return self._files.piece(self._local, shard.table.weight, shard.first, shard.meta)


def verify_lookups(
    tower: Tower, blueprint: Blueprint, written: WrittenShards, spec: ExportSpec
) -> LookupReport:
    """Compare lookups in the written rows with eager ones, in every case of the gate.

    A case looks up the ids of sample rows, which may be few of the rank's rows, or none; `read_back_rows`
    compares all of them.

    Raises:
        VerificationFailed: a lookup differs.
    """
    mapped = blueprint.build()
    look_up_in_pieces(
        mapped.module, written.pieces, lambda table: spec.tables.dtype_of(table.name, table.trained)
    )
    maps = id_map_tensors(tower.module)
    fill_id_maps(mapped.module, lambda name: written.id_map(name, maps[name]))
    eager, reference = (
        build_eager_lookup(each, max_batch_size=spec.max_batch_size) for each in (tower, mapped)
    )
    rows, _ = open_rows(replace(blueprint.planned, item_id_column=None), spec)
    rows = replace(rows, known_ids=known_ids(tower.module))
    cases = make_cases(rows, tower.plan)
    # As in the gate, rows that hold more than real ones, which eager does not look up, are no case.
    agreeing = [each for each in cases.must_agree if not each.beyond_rows or _looks_up(eager, each)]
    differences = (_difference(eager, reference, each, tower) for each in agreeing)
    return LookupReport(
        cases=len(agreeing) + len(cases.must_be_refused),
        refused=sum(_both_refuse(eager, reference, each, tower) for each in cases.must_be_refused),
        own_rows=0,
        largest_difference=max(differences),
    )


def _looks_up(eager: LookUp, batch: NamedBatch) -> bool:
    try:
        eager(batch.inputs)
    except Exception as error:  # noqa: BLE001  the code of a family may raise anything
        log.warning("case_left_out case=%s eager=%s", batch.name, error)
        return False
    return True


def _difference(eager: LookUp, reference: LookUp, batch: NamedBatch, tower: Tower) -> float:
    """Return the largest difference of the two lookups; raise VerificationFailed above the tolerance."""
    difference = compare_runs(eager(batch.inputs), reference(batch.inputs))
    if not difference.within(FP32_TOLERANCE):
        how = difference.problem or f"differs by {difference.largest:.3g} at scale {difference.scale:.3g}"
        raise VerificationFailed(
            f"{tower.title}: {batch.name}: {difference.output}, looked up in the written rows, is not what "
            f"eager looks up: {how}",
            where=batch.name,
        )
    return difference.largest


def _both_refuse(eager: LookUp, reference: LookUp, batch: NamedBatch, tower: Tower) -> bool:
    """Return whether both lookups refuse the inputs; raise VerificationFailed if only one does."""
    expected, found = _refuses(eager, batch), _refuses(reference, batch)
    if expected != found:
        who = "eager" if expected else "the lookup in the written rows"
        raise VerificationFailed(f"{tower.title}: {batch.name}: only {who} refuses", where=batch.name)
    return expected


def _refuses(lookup: LookUp, batch: NamedBatch) -> bool:
    try:
        lookup(batch.inputs)
    except (RuntimeError, DimPlanViolated):
        return True
    return False
