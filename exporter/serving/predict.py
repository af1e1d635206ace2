"""Prediction with a published package: one output column per output, as a server would compute it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from exporter.config.schema import FeatureKind
from exporter.data.encode import encode_in_calls
from exporter.data.parquet import open_parquet
from exporter.dims.plan import BATCH
from exporter.errors import AlreadyPublished, InvalidArtifact, InvalidRows, InvalidSpec
from exporter.options.layout import PackageKind
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.serving.tower_process import TowerProcess
from exporter.storage.open import open_store, split_uri
from exporter.verify.runner import PackageRunner, Refused

_ROWS_PER_CALL = 256  # at most; never more than the package takes


@dataclass(frozen=True)
class PredictionFiles:
    """The files of rows and of outputs; the input's `id_column` is copied before the outputs."""

    input_uri: str
    output_uri: str
    id_column: str | None = None


def predict(
    tower: DownloadedTower, files: PredictionFiles, *, scratch: Path, on_rows: Callable[[int], None]
) -> int:
    """Run a tower over every row of a parquet input and write its outputs; returns the number of rows.

    `on_rows` receives the number of rows done so far, after every call of the package.

    The output has the column of ids, if one is named, and one column per output of the package, in the order
    of the input's rows. An output of more than one number per row is a list, one of several vectors per row a
    list of lists; one of a value per candidate is a list of each row's own.

    Raises:
        InvalidRows: a row cannot be encoded; nothing is written.
        AlreadyPublished: the output exists.
    """
    folder, key = split_uri(where := files.output_uri)
    store = open_store(folder)
    if store.exists(key):  # `put` would refuse as well, after all the work
        raise AlreadyPublished(f"{where} exists", hint="choose another output", where=where)
    local = scratch / "predictions.parquet"
    rows = 0
    with _serve(tower, scratch) as served:
        writer: pq.ParquetWriter | None = None
        try:
            for table in _predicted(tower, served, files):
                writer = writer or pq.ParquetWriter(local, table.schema)
                writer.write_table(table)
                rows += table.num_rows
                on_rows(rows)
        finally:
            if writer is not None:
                writer.close()
    store.put(local, key)
    return rows


def _serve(tower: DownloadedTower, scratch: Path) -> TowerProcess | PackageRunner:
    """Return the tower in a process of its own: loaded as servers do, or as TorchEasyRec's loader does."""
    if tower.chain[0].kind is not PackageKind.TORCHSCRIPT:
        return TowerProcess(tower, scratch)
    return PackageRunner(
        tower.chain,
        op_libraries=tower.manifest.op_libraries,
        scratch=scratch,
        device=tower.manifest.device,
        tf32=tower.entry.tf32,
    )


def find_id_column(tower: DownloadedTower, input_uri: str, asked: str | None = None) -> str | None:
    """Return the column of the input that tells its rows apart: the one asked for, or else the likeliest.

    That is the column of ids of the artifact's item vectors, or else the first id feature that is no
    sequence; None if the input has neither.

    Raises:
        InvalidSpec: the one asked for is the name of an output.
    """
    outputs = {output.name for output in tower.entry.outputs}
    if asked is not None:
        if asked in outputs:
            raise InvalidSpec(
                f"the {tower.entry.name} tower has an output {asked}, so no column of ids can have that name",
                hint="name another column, or rename that of the input",
                where="--id-column",
            )
        return asked
    vectors = tower.entry.vectors
    features = (each for each in tower.features if each.kind is FeatureKind.ID and not each.is_sequence)
    likely = [*([vectors.id_column] if vectors else ()), *(each.name for each in features)]
    present = set(open_parquet(input_uri).column_names()) - outputs
    return next((name for name in likely if name in present), None)


def _predicted(
    tower: DownloadedTower, served: TowerProcess | PackageRunner, files: PredictionFiles
) -> Iterator[pa.Table]:
    """Yield the outputs of a call of the package at a time, behind the ids of their rows."""
    ids = files.id_column
    columns = [*(feature.name for feature in tower.features), *([ids] if ids else ())]
    size = min(_ROWS_PER_CALL, tower.manifest.max_batch_size)
    for batch in open_parquet(files.input_uri).batches(columns, rows_per_batch=size):
        rows, where = batch.table, batch.where
        for inputs in encode_in_calls(
            batch.table, tower.features, tower.plan, where=where, first_row=batch.first_row
        ):
            table = _table(_answer(served, inputs, files.input_uri), inputs, tower)
            if ids is not None:
                table = table.add_column(0, rows.schema.field(ids), rows.column(ids).slice(0, len(table)))
                rows = rows.slice(len(table))
            yield table


def _answer(served: TowerProcess | PackageRunner, inputs: dict[str, Tensor], where: str) -> dict[str, Tensor]:
    try:
        return served.run(inputs)
    except Refused as refusal:
        raise InvalidRows(f"the package refused rows of {where}: {refusal}", where=where) from refusal


def find_unmet_demand(refusal: str, demands: Sequence[str]) -> str:
    """Return the meaning of a package's refusal: the demand whose number it gives, else its own words."""
    number = re.search(r"<= 0 but received (\d+)$", refusal)
    return demands[int(number[1]) - 1] if number and int(number[1]) <= len(demands) else refusal


def _table(outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor], tower: DownloadedTower) -> pa.Table:
    """Return one column per output: numbers for one value per row, lists for several values or vectors."""
    columns: dict[str, pa.Array] = {}
    for output in tower.entry.outputs:
        column, axis = to_column(outputs[output.name]), output.shape[0]
        columns[output.name] = (
            column if axis == BATCH else _fold_rows(column, _elements_per_row(axis, inputs, tower))
        )
    return pa.table(columns)


def to_column(values: Tensor) -> pa.Array:
    """Return an output as a column: numbers for one axis, lists for two, lists of lists for three."""
    column = pa.array(values.reshape(-1).numpy())
    for size in reversed(values.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size).cast(pa.list_(column.type))
    return column


def _fold_rows(column: pa.Array, per_row: Tensor) -> pa.Array:
    """Return the column cut into one list per row."""
    offsets = pa.array([0, *per_row.cumsum(0).tolist()], type=pa.int32())
    return pa.ListArray.from_arrays(offsets, column)


def _elements_per_row(dim: int | str, inputs: Mapping[str, Tensor], tower: DownloadedTower) -> Tensor:
    """Return the number of elements of a dim in each row, from the lengths beside the dim's values."""
    for tensor in tower.plan.inputs:
        feature, dot, part = tensor.filled_with.rpartition(".")
        lengths = tower.plan.input_filled_with(f"{feature}{dot}lengths")
        if tensor.shape[0] == dim and part == "values" and lengths is not None:
            return inputs[lengths.name]
    raise InvalidArtifact(
        f"the {tower.entry.name} tower has outputs of {dim} elements, which no input counts per row",
        hint="export again; the manifest was changed or made by another version",
    )
