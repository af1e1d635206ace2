"""Run item rows through the package and write the vectors to parquet, a batch at a time.

Memory does not grow with the number of rows.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from exporter.data.encode import encode_in_calls
from exporter.data.parquet import RowBatch
from exporter.dims.plan import BATCH
from exporter.errors import InvalidRows, VerificationFailed
from exporter.items.ids import ids_of
from exporter.items.peak_memory import peak_bytes
from exporter.items.plan import Items, VectorsPlan
from exporter.items.read_back import ComputedItems
from exporter.items.vector_files import Vectors, VectorsWriter
from exporter.stages import Progress
from exporter.verify.runner import PackageRunner, Refused

_ROWS_READ = 1 << 14  # at a time; more if the package takes more in one call


@dataclass(frozen=True, kw_only=True, eq=False)
class WrittenVectors:
    """The vectors on disk, and the input rows of a sample of them."""

    parts: tuple[Path, ...]
    sample: NDArray[np.int64]  # row numbers over all files, ascending
    sampled: tuple[RowBatch, ...]  # the rows with these numbers
    seconds: float
    package_peak_bytes: int


def write_vectors(
    plan: VectorsPlan,
    runner: PackageRunner,
    folder: Path,
    sample: NDArray[np.int64],
    computed: ComputedItems,
    progress: Progress,
) -> WrittenVectors:
    """Run every row, in order, write its vector, and keep the rows whose numbers are in `sample`.

    Every item is also added to `computed`, by which it is recognised when it is read back.

    The numbers in `sample` ascend.

    Raises:
        InvalidRows: a row cannot be encoded or is refused, or the number of rows has changed.
        VerificationFailed: a vector contains NaN or infinity.
        PackageCrashed: the package's process died.
    """
    ids, sampled, done = plan.items.ids, [], 0
    with runner, VectorsWriter(folder, ids.column, ids.kind, width=plan.width) as writer:
        start = time.monotonic()
        for batch in _batches(plan.items):
            vectors = _vectors(batch, plan, runner)
            batch_ids = ids_of(batch, ids.column)
            computed.add(batch_ids, vectors)
            writer.write(batch_ids, vectors)
            low, high = np.searchsorted(sample, [done, done + len(vectors)])
            if high > low:
                sampled.append(_take_rows(batch, sample[low:high] - done))
            done += len(vectors)
            rate = done / (time.monotonic() - start)
            progress(done / ids.rows, f"vectors: {done:,} of {ids.rows:,} items, {rate:,.0f} per second")
        package_peak = peak_bytes(runner.pid)
    seconds = time.monotonic() - start
    if done != ids.rows:
        raise InvalidRows(
            f"{plan.items.source.uri} had {ids.rows:,} rows, and {done:,} when it was read again",
            hint="export again, from files that are not being written",
            where=plan.items.source.uri,
        )
    return WrittenVectors(
        parts=tuple(writer.parts),
        sample=sample,
        sampled=tuple(sampled),
        seconds=seconds,
        package_peak_bytes=package_peak,
    )


def encode_calls(batch: RowBatch, items: Items) -> Iterator[dict[str, Tensor]]:
    """Encode the rows to tensors, split into as many calls as the package's bounds require."""
    most = _largest_batch(items)
    for start in range(0, batch.table.num_rows, most):
        yield from encode_in_calls(
            batch.table.slice(start, most),
            items.features,
            items.plan,
            where=batch.where,
            first_row=batch.first_row + start,
        )


def _batches(items: Items) -> Iterator[RowBatch]:
    columns = dict.fromkeys([items.ids.column, *(feature.name for feature in items.features)])
    return items.source.batches(list(columns), rows_per_batch=max(_ROWS_READ, _largest_batch(items)))


def _largest_batch(items: Items) -> int:
    high = items.plan.dim(BATCH).high
    assert high is not None, "every package has a largest batch"
    return high


def _vectors(batch: RowBatch, plan: VectorsPlan, runner: PackageRunner) -> Vectors:
    try:
        parts = [runner.run(inputs)[plan.output].numpy() for inputs in encode_calls(batch, plan.items)]
    except Refused as refusal:
        raise InvalidRows(
            f"the package refused rows of {batch.where} from row {batch.first_row} on: {refusal}",
            where=batch.where,
        ) from refusal
    vectors: Vectors = np.concatenate(parts)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = batch.first_row + int(finite.argmin())
        raise VerificationFailed(
            f"the vector of row {row} of {batch.where} contains NaN or infinity",
            hint="check the item's values and the weights of its features",
            where=batch.where,
        )
    return vectors


def _take_rows(batch: RowBatch, rows: NDArray[np.int64]) -> RowBatch:
    """Copy some of the rows, so that the batch can be freed."""
    return RowBatch(where=batch.where, first_row=batch.first_row, table=batch.table.take(pa.array(rows)))
