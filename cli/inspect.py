"""`slipway inspect`: show a published artifact's manifest, on one screen, in full or as JSON."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.table import Table

from cli.views.summary import describe_family, summarise
from cli.views.verdict import describe_verdict
from exporter.artifact.read import read_manifest, root_of, verify_artifact
from exporter.artifact.reports import find_release_report
from exporter.artifact.signing import VerifyingKey
from exporter.dtypes import Kernel, Precision
from exporter.errors import InvalidSpec
from exporter.manifest import (
    DimEntry,
    Fp32Report,
    Manifest,
    ReadBack,
    ShardedTables,
    TensorEntry,
    TowerEntry,
    TraceTime,
    TriedSizes,
    VectorsEntry,
)
from exporter.redaction import escape_deceptive
from exporter.spec import IdWeights, Pass, SetPrecision
from exporter.storage.open import open_store
from jobs.ids import is_job_id
from service.client.options import non_empty
from service.client.tables import console, sizes_text, table_of
from service.commands.client_options import add_url_option, client_of
from slipway.rest.json_values import to_text

_WEIGHTS = {
    IdWeights.APPLY: "multiplies weighted ids by their weights, as training did",
    IdWeights.IGNORE: "ignores the weights of ids, as requested, unlike training did",
}
_REUSED = {
    "request": "neither traced nor compiled; the code of an equal request was reused",
    "graph": "traced, not compiled; the code of an equal graph was reused",
}
_EXAMPLE = "example: slipway inspect s3://models/retrieval/01J.../"


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `inspect`."""
    parser = subparsers.add_parser(
        "inspect",
        help="show what a published artifact holds",
        description="Show what a published artifact holds: on one screen, with --full all of its manifest.",
        epilog=_EXAMPLE,
    )
    parser.add_argument(
        "artifact",
        metavar="URI",
        type=non_empty,
        help="the artifact's folder, or its manifest.json; or a job's id, whose manifest the service sends",
    )
    parser.add_argument(
        "--verify",
        metavar="KEY",
        type=Path,
        help="public key; an artifact that is not signed with it is refused. Every file of the artifact is "
        "read",
    )
    parser.add_argument(
        "--full", action="store_true", help="show every tensor, size, file, digest, table, stage and case"
    )
    parser.add_argument("--json", action="store_true", help="print the manifest itself")
    add_url_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the manifest."""
    verified, named = arguments.verify is not None, arguments.artifact
    is_job = is_job_id(named) and not verified and not Path(named).exists()
    if verified and is_job_id(named) and not Path(named).exists():
        raise InvalidSpec(
            "--verify takes an artifact's URI", hint=f"slipway verify {named} --key {arguments.verify}"
        )
    if is_job:
        manifest = Manifest.model_validate_json(to_text(client_of(arguments).manifest(named)))
    else:
        manifest = (
            verify_artifact(named, VerifyingKey(arguments.verify)) if verified else read_manifest(named)
        )
    if arguments.json:
        print(manifest.model_dump_json(indent=2))
        return 0
    verdict = None if is_job else find_release_report(open_store(root_of(named)), manifest.job_id)
    out = console()
    for part in _full(manifest) if arguments.full else summarise(manifest):
        out.print(part)
    if verified:
        out.print(f"signed by the owner of {arguments.verify}; every file is the one that was signed")
    if verdict is not None:
        for part in describe_verdict(verdict.report, signed_manifest=verified, full=arguments.full):
            out.print(part)
    if not arguments.full:
        out.print(f"everything else: slipway inspect {arguments.artifact} --full")
    return 0


def _full(manifest: Manifest) -> Iterator[Table | str]:
    yield _overview(manifest)
    for tower in manifest.towers:
        yield from _interface(tower)
        yield from _history(tower)


def _interface(tower: TowerEntry) -> Iterator[Table | str]:
    """Describe what serving needs to know: files, inputs, outputs, and how they are computed."""
    yield _files(tower)
    yield _tensors(f"{tower.name} tower, {tower.view} view", (*tower.inputs, *tower.outputs), tower.dims)
    if tower.sparse is not None:
        yield _tensors(f"{tower.name} tower, between its packages", tower.sparse.tensors, tower.sparse.dims)
    if tower.tables is not None:
        title = f"{tower.name} tower, looked up in its tables' shards"
        yield _tensors(title, tower.tables.tensors, tower.tables.dims)
        yield _lookups(tower.name, tower.tables)
    if tower.id_weights is not None:
        yield f"{tower.name} tower: it {_WEIGHTS[tower.id_weights]}"
    if tower.precision is not Precision.FP32:
        yield f"{tower.name} tower: it computes in {tower.precision} by autocast, and its outputs are fp32"
    if tower.tf32:
        yield f"{tower.name} tower: matrix products may round to TF32, if the server allows it too"
    if tower.kernel is Kernel.TRITON:
        yield f"{tower.name} tower: Triton kernels that are part of the package compute its HSTU layers"
    for remark in tower.remarks:
        yield f"{tower.name} tower: {escape_deceptive(remark)}"
    if tower.embeddings:
        yield _embeddings(tower)


def _history(tower: TowerEntry) -> Iterator[Table | str]:
    """Describe how the tower was exported, and the results of its verification."""
    yield _code(tower)
    for applied in tower.passes:
        yield f"{tower.name} tower: {_edit(applied.asked)} in {len(applied.calls)} calls"
    if tower.vectors is not None:
        yield _vectors(tower.vectors)
    yield _stages(tower)
    if tower.trace is not None:
        yield trace_table(tower.name, tower.trace)
    yield _verification(tower)
    if tower.samples is not None:
        cases = ", ".join(f"{case.name} ({sizes_text(case.sizes)})" for case in tower.samples.cases)
        yield f"{tower.name} tower: sample requests with answers, for `slipway prove`: {cases}"
    if tower.verified.read_back is not None:
        yield _read_back(tower.name, tower.verified.read_back)
    if tower.verified.fp32 is not None:
        yield _against_fp32(tower.name, tower.verified.fp32)


def _read_back(tower: str, report: ReadBack) -> str:
    """Describe the bytes that were compared before they were sent."""
    from_code = report.tensors - report.from_checkpoint
    return (
        f"{tower} tower: all {report.bytes:,} bytes of {report.tensors} weights read back before they "
        f"were sent, {report.from_checkpoint} of them compared with the checkpoint"
        + (f", {from_code} with the model's code" if from_code else "")
        + f"; {report.entries} entries of archives compared with what was compiled"
    )


def _lookups(tower: str, tables: ShardedTables) -> str:
    """Describe the verification of the tables' shards."""
    report = tables.verified
    rows = f"{report.own_rows:,} rows compared with the checkpoint's"
    rows += f", all {report.bytes:,} bytes" if report.bytes else ""
    return (
        f"{tower} tower: {len(tables.shards)} shards of its tables, verified by the ranks that wrote them in "
        f"{report.cases} cases, {report.refused} of them refused; largest difference from eager "
        f"{report.largest_difference:.2g}; {rows}"
    )


def _edit(asked: Pass) -> str:
    if isinstance(asked, SetPrecision):
        return f"{asked.submodule} computes in {asked.precision}"
    return f"{asked.submodule} computes attention {asked.attention}"


def _overview(manifest: Manifest) -> Table:
    table = table_of("what", "value", title=f"artifact {manifest.job_id}", whole="what")
    table.show_header = False
    versions = manifest.versions
    rows = {
        "family": describe_family(manifest),
        "mode, device": f"{manifest.mode}, {manifest.device} ({manifest.architecture})",
        "layout": manifest.layout,
        "largest batch": str(manifest.max_batch_size),
        "created": manifest.created_at,
        "versions": f"slipway {versions.slipway}, Python {versions.python}, torch {versions.torch}, torchrec "
        f"{versions.torchrec}, {versions.fbgemm}, triton {versions.triton}, CUDA {versions.cuda or 'none'}",
        "import before loading": ", ".join(manifest.op_libraries) or "nothing",
    }
    rows |= {source.role: f"{source.uri}  sha256 {source.sha256}" for source in manifest.sources}
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _files(tower: TowerEntry) -> Table:
    table = table_of("file", "bytes", "sha256", title=f"{tower.name} tower, files")
    for file in tower.all_files:
        table.add_row(file.path, f"{file.size:,}", file.sha256)
    return table


def _code(tower: TowerEntry) -> str:
    """Say whether the tower was compiled for this export, or whose compiled code it reused."""
    if tower.code == "cold":
        why = f": {escape_deceptive(tower.code_note)}" if tower.code_note else ""
        return f"{tower.name} tower: cold, compiled for this export{why}"
    by_node = "" if tower.verified.run_by_node else "; its nodes were checked when it was compiled"
    return f"{tower.name} tower: warm, {_REUSED[tower.reused or 'graph']}{by_node}"


def _stages(tower: TowerEntry) -> Table:
    table = table_of("stage", "seconds", title=f"{tower.name} tower, time")
    for stage, seconds in tower.stage_seconds.items():
        table.add_row(stage, f"{seconds:.1f}")
    return table


def trace_table(tower: str, trace: TraceTime) -> Table:
    """Show the nodes that took longest to trace."""
    title = f"{tower} tower, traced {trace.nodes:,} nodes in {trace.seconds:.1f} s; the slowest"
    table = table_of("seconds", "node", "operator", "from", title=title)
    for slow in trace.slowest:
        table.add_row(f"{slow.seconds:.3f}", slow.node, slow.operator, slow.place)
    return table


def _vectors(vectors: VectorsEntry) -> Table:
    table = table_of("what", "value", title=f"vectors of {vectors.rows:,} items", whole="what")
    table.show_header = False
    rows = {
        "columns": f"{vectors.id_column} {vectors.id_type}, {vectors.vector_column} {vectors.dtype} "
        f"× {vectors.width} from {vectors.output}",
        "computed": f"{vectors.rows_per_second:,.0f} rows per second",
        "most memory": f"{vectors.peak_memory_bytes:,} bytes",
        "checked": f"{vectors.checked_rows:,} rows, largest difference {vectors.largest_difference:.2g} "
        f"at scale {vectors.scale:.2g}",
    }
    if (index := vectors.index) is not None:
        parameters = {name: str(value) for name, value in index.parameters.model_dump().items()}
        recall = "not measured" if index.recall_at_10 is None else f"{index.recall_at_10:.3f}"
        rows |= {
            "index": ", ".join(
                [parameters.pop("kind"), *(f"{name} {value}" for name, value in parameters.items())]
            ),
            "compares by": f"{index.metric}, returns {index.labels.replace('_', ' ')}",
            "recall@10": f"{recall}, over {index.queries} queries",
            "built": f"in {index.seconds:.1f} s with {index.peak_memory_bytes:,} bytes of memory",
        }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _tensors(title: str, tensors: Iterable[TensorEntry], dims: Iterable[DimEntry]) -> Table:
    table = table_of("tensor", "dtype", "shape", title=title)
    for tensor in tensors:
        table.add_row(tensor.name, tensor.dtype, " × ".join(str(size) for size in tensor.shape))
    for dim in dims:
        high = "unbounded" if dim.high is None else f"{dim.high:,}"
        table.add_row(
            f"dim {dim.name}", f"{dim.low} to {high}", "; ".join([dim.reason, *_describe_tried(dim)])
        )
    return table


def _describe_tried(dim: DimEntry) -> Iterator[str]:
    """Say which sizes were tried; nothing where an earlier release made the artifact."""
    if dim.tried is not None:
        yield f"tried {_range(dim.tried)}"
    if dim.share is not None and dim.share.tried is not None:
        any_number = "any" if dim.share.high is None else f"{dim.share.high:,}"
        refused = "; more than was tried is refused" if dim.share.refused else ""
        contract = f"the contract says 0 to {any_number}{refused}"
        yield f"{dim.share.counts}: tried {_range(dim.share.tried)}; {contract}"


def _range(tried: TriedSizes) -> str:
    return f"{tried.smallest:,} to {tried.largest:,}"


def _embeddings(tower: TowerEntry) -> Table:
    """Show the dtypes of each table's rows, and their differences from the checkpoint's rows."""
    sizes = ("rows × width", "trained in", "dtype", "bytes", "in fp32")
    columns = ("table", *sizes, "error per row: largest", "mean")
    table = table_of(*columns, title=f"{tower.name} tower, tables")
    for each in tower.embeddings:
        dtypes = each.trained, each.dtype
        sizes = f"{each.rows:,} × {each.width}", *dtypes, f"{each.bytes:,}", f"{each.fp32_bytes:,}"
        errors = ("none", "none")
        if (error := each.error) is not None:
            errors = (
                f"{error.max_absolute:.2g} ({error.max_relative:.2g} of the row)",
                f"{error.mean_absolute:.2g} ({error.mean_relative:.2g} of the row)",
            )
        table.add_row(each.name, *sizes, *errors)
    return table


def _against_fp32(tower: str, report: Fp32Report) -> Table:
    title = f"{tower} against the model in fp32: allowed {report.tolerance:g} of the output's scale"
    table = table_of("output", "largest difference", "of its scale", "in case", title=title)
    for each in report.outputs:
        table.add_row(each.output, f"{each.largest:.2g}", f"{each.relative:.2g}", each.case)
    return table


def _verification(tower: TowerEntry) -> Table:
    report = tower.verified
    title = (
        f"{tower.name} verified: largest difference {report.largest_difference:.2g}, "
        f"allowed {report.tolerance:g} of the output's scale"
    )
    table = table_of("case", "sizes", "result", title=title)
    for case in report.cases:
        result = "refused" if case.largest_difference is None else f"{case.largest_difference:.2g}"
        table.add_row(case.name, sizes_text(case.sizes), result)
    return table
