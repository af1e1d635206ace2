"""Rows through a published package: what a server would answer, one output column per output."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from exporter.aoti.architecture import require_runnable
from exporter.aoti.op_libraries import require_trusted
from exporter.config.schema import Feature
from exporter.data.encode import encode_in_calls
from exporter.data.parquet import open_parquet
from exporter.dims.declared import plan_declared
from exporter.dims.plan import BATCH, DimPlan, plan_dims
from exporter.errors import AlreadyPublished, InvalidArtifact, InvalidRows, InvalidSpec
from exporter.families.loading import family_module
from exporter.manifest import Manifest, TowerEntry
from exporter.published import fetch_tower, read_manifest
from exporter.signing import VerifyingKey
from exporter.spec import TowerName
from exporter.storage.store import open_store, split_uri
from exporter.towers.declared_view import declared_tower
from exporter.towers.view import published_tower
from exporter.verify.reload import Link
from exporter.verify.runner import PackageRunner, Refused

_ROWS_PER_CALL = 256  # at most; never more than the package takes


@dataclass(frozen=True, kw_only=True)
class ServedTower:
    """A published tower, downloaded and checked, with what is needed to feed it and to call it."""

    manifest: Manifest
    entry: TowerEntry
    chain: tuple[Link, ...]
    features: tuple[Feature, ...]
    plan: DimPlan


def download(
    artifact_uri: str,
    tower: TowerName,
    into: Path,
    key: VerifyingKey | None = None,
    *,
    families: Collection[str] = (),
) -> ServedTower:
    """Fetch a tower's package and the description of its inputs.

    Operators may come from the packages of `families`, which the operator of this program has listed.

    Raises:
        SignatureRefused: there is a `key`, which has not signed the artifact.
        InvalidSpec: the artifact has no such tower.
        InvalidArtifact: it is incomplete, damaged, contradicts itself, or was built for another machine.
    """
    manifest = read_manifest(artifact_uri, key)
    entry = _entry(manifest, tower, artifact_uri)
    require_runnable(manifest.device, manifest.architecture)
    require_trusted(manifest.op_libraries, lambda: map(family_module, families), artifact_uri)
    folder = fetch_tower(artifact_uri, tower, into, key)
    features, plan = _reading(manifest, entry, folder / "pipeline.config", artifact_uri)
    if [(tensor.name, tensor.shape) for tensor in plan.inputs] != [(i.name, i.shape) for i in entry.inputs]:
        raise InvalidArtifact(
            f"{artifact_uri}: the {tower} tower's pipeline.config and the manifest describe different inputs",
            hint="export again; the artifact was changed or made by another version",
            where=artifact_uri,
        )
    return ServedTower(
        manifest=manifest,
        entry=entry,
        chain=tuple(_chain(entry, folder.parent)),
        features=features,
        plan=plan,
    )


def predict(
    served: ServedTower, input_uri: str, output_uri: str, *, scratch: Path, on_rows: Callable[[int], None]
) -> int:
    """Run a tower over every row of a parquet input and write its outputs; returns the number of rows.

    `on_rows` is told the rows done so far after every call of the package.

    The output has one column per output of the package, in the order of the input's rows. An output of
    more than one number per row is a list, one of several vectors per row a list of lists; one of a value
    per candidate is a list of each row's own.

    Raises:
        InvalidRows: a row cannot be encoded; nothing is written.
        AlreadyPublished: the output exists.
    """
    folder, key = split_uri(output_uri)
    store = open_store(folder)
    if store.exists(key):  # `put` would refuse as well, after all the work
        raise AlreadyPublished(f"{output_uri} exists", hint="choose another output", where=output_uri)
    local = scratch / "predictions.parquet"
    rows = 0
    running = PackageRunner(
        served.chain,
        op_libraries=served.manifest.op_libraries,
        scratch=scratch,
        device=served.manifest.device,
    )
    running.tf32 = served.entry.tf32
    with running as runner:
        writer: pq.ParquetWriter | None = None
        try:
            for inputs in _batches(served, input_uri):
                table = _table(_answer(runner, inputs, served.entry.demands, input_uri), inputs, served)
                writer = writer or pq.ParquetWriter(local, table.schema)
                writer.write_table(table)
                rows += table.num_rows
                on_rows(rows)
        finally:
            if writer is not None:
                writer.close()
    store.put(local, key)
    return rows


def _entry(manifest: Manifest, tower: TowerName, where: str) -> TowerEntry:
    for entry in manifest.towers:
        if entry.name is tower:
            return entry
    names = ", ".join(entry.name for entry in manifest.towers)
    raise InvalidSpec(f"{where} has no {tower} tower", hint=f"it has: {names}", where="tower")


def _reading(
    manifest: Manifest, entry: TowerEntry, config: Path, where: str
) -> tuple[tuple[Feature, ...], DimPlan]:
    """How rows become inputs: by the pipeline config beside the package, or by what its family declared."""
    text = config.read_text()
    if entry.declaration is not None:
        declared = declared_tower(entry.declaration, family=manifest.family, text=text)
        plan = plan_declared(entry.declaration, max_batch_size=manifest.max_batch_size)
        return declared.pipeline.features, plan
    published = published_tower(text, entry.name, where=f"{where}: {entry.name}/pipeline.config")
    features = published.pipeline.features
    return features, plan_dims(features, max_batch_size=manifest.max_batch_size)


def _chain(entry: TowerEntry, root: Path) -> Iterator[Link]:
    """The packages in calling order, and how the manifest says to call each."""
    inputs = tuple(tensor.name for tensor in entry.inputs)
    if entry.sparse is not None:
        yield Link(package=root / entry.sparse.package.path, order=inputs)
        inputs = tuple(tensor.name for tensor in entry.sparse.tensors)
    yield Link(package=root / entry.package.path, order=inputs)


def _batches(served: ServedTower, input_uri: str) -> Iterator[dict[str, Tensor]]:
    columns = [feature.name for feature in served.features]
    size = min(_ROWS_PER_CALL, served.manifest.max_batch_size)
    for batch in open_parquet(input_uri).batches(columns, rows_per_batch=size):
        yield from encode_in_calls(
            batch.table, served.features, served.plan, where=batch.where, first_row=batch.first_row
        )


def _answer(
    runner: PackageRunner, inputs: dict[str, Tensor], demands: Sequence[str], where: str
) -> dict[str, Tensor]:
    try:
        return runner.run(inputs)
    except Refused as refusal:
        unmet = unmet_demand(str(refusal), demands)
        raise InvalidRows(f"the package refused rows of {where}: {unmet}", where=where) from refusal


def unmet_demand(refusal: str, demands: Sequence[str]) -> str:
    """What a package's refusal means: the words of the demand whose number it gives, else its own."""
    number = re.search(r"<= 0 but received (\d+)$", refusal)
    return demands[int(number[1]) - 1] if number and int(number[1]) <= len(demands) else refusal


def _table(outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor], served: ServedTower) -> pa.Table:
    """One column per output: numbers for one per row, lists for more, lists of lists for several each."""
    columns: dict[str, pa.Array] = {}
    for output in served.entry.outputs:
        column, axis = output_column(outputs[output.name]), output.shape[0]
        columns[output.name] = column if axis == BATCH else _folded(column, _per_row(axis, inputs, served))
    return pa.table(columns)


def output_column(values: Tensor) -> pa.Array:
    """An output as a column: numbers along its first axis, lists for a second, lists of lists for a third."""
    column = pa.array(values.reshape(-1).numpy())
    for size in reversed(values.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size).cast(pa.list_(column.type))
    return column


def _folded(column: pa.Array, per_row: Tensor) -> pa.Array:
    """The column cut into one list per row."""
    offsets = pa.array([0, *per_row.cumsum(0).tolist()], type=pa.int32())
    return pa.ListArray.from_arrays(offsets, column)


def _per_row(dim: int | str, inputs: Mapping[str, Tensor], served: ServedTower) -> Tensor:
    """How many elements of a dim each row has, as the lengths beside the dim's values say."""
    for tensor in served.plan.inputs:
        feature, dot, part = tensor.filled_with.rpartition(".")
        lengths = served.plan.presenting(f"{feature}{dot}lengths")
        if tensor.shape[0] == dim and part == "values" and lengths is not None:
            return inputs[lengths.name]
    raise InvalidArtifact(
        f"the {served.entry.name} tower has outputs of {dim} elements, which no input counts per row",
        hint="export again; the manifest was changed or made by another version",
    )
