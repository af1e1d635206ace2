"""One screen about a published artifact: what a server calls, and how far it was checked."""

from collections.abc import Iterator

from rich.table import Table

from exporter.manifest import DimEntry, Manifest, TensorEntry, TowerEntry
from exporter.redaction import escape_deceptive, shorten
from service.client.tables import table_of

_NAMED = 4  # inputs, outputs or dims of a tower; the others are counted
_LONGEST = 160  # characters of a source's URI


def summarise(manifest: Manifest) -> Iterator[Table | str]:
    """Describe an artifact in about ten lines, and each of its towers in five."""
    versions = manifest.versions
    rows = {
        "family": describe_family(manifest),
        "for": f"{manifest.device} ({manifest.architecture}), batches of up to {manifest.max_batch_size:,}",
        "mode, layout": f"{manifest.mode}, {manifest.layout}",
        "created": f"{manifest.created_at} by slipway {versions.slipway} with torch {versions.torch}",
        "import first": ", ".join(manifest.op_libraries) or "nothing",
    }
    rows |= {source.role: shorten(source.uri, _LONGEST) or "not named" for source in manifest.sources}
    table = table_of("what", "value", title=f"artifact {manifest.job_id}", whole="what")
    table.show_header, table.box = False, None
    for name, value in rows.items():
        table.add_row(name, value)
    yield table
    for tower in manifest.towers:
        yield from (escape_deceptive(line) for line in _tower(tower))


def describe_family(manifest: Manifest) -> str:
    """Name the family, and the package that it comes from if it is no part of Slipway."""
    package = manifest.family_package
    return f"{manifest.family}, of {package.distribution} {package.version}" if package else manifest.family


def _tower(tower: TowerEntry) -> Iterator[str]:
    files = tower.all_files
    seconds = sum(tower.stage_seconds.values())
    yield ""
    yield (
        f"{tower.name} tower: {len(files)} files of {sum(file.size for file in files):,} bytes, "
        f"exported in {seconds:.0f} s, {'compiled' if tower.code == 'cold' else 'with code from the cache'}"
    )
    yield f"  inputs   {_first([tensor.name for tensor in tower.inputs])}"
    yield f"  outputs  {_first([_tensor(tensor) for tensor in tower.outputs])}"
    yield f"  sizes    {_first([_dim(dim) for dim in tower.dims])}"
    report = tower.verified
    yield (
        f"  checked  in {len(report.cases)} cases: differs from eager by at most "
        f"{report.largest_difference:.2g}, allowed {report.tolerance:g} of an output's scale; "
        f"{_samples(tower)}"
    )
    if tower.vectors is not None:
        index = f" and a {tower.vectors.index.parameters.kind} index" if tower.vectors.index else ""
        yield f"  items    {tower.vectors.rows:,} vectors of {tower.vectors.width} numbers{index}"


def _first(texts: list[str]) -> str:
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "") if texts else "none"


def _tensor(tensor: TensorEntry) -> str:
    return f"{tensor.name} {tensor.dtype} {' × '.join(map(str, tensor.shape))}"


def _dim(dim: DimEntry) -> str:
    return f"{dim.name} from {dim.low}" + (f" to {dim.high:,}" if dim.high is not None else "")


def _samples(tower: TowerEntry) -> str:
    return f"{len(tower.samples.cases)} sample requests" if tower.samples else "no sample requests"
