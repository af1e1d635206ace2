"""`slipway inspect`: a published artifact's manifest, as tables or as it is."""

import argparse
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from exporter.manifest import Manifest, TowerEntry
from exporter.publish import read_manifest

_EXAMPLE = "example: slipway inspect s3://models/retrieval/01J.../"


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `inspect`."""
    parser = subparsers.add_parser(
        "inspect", help="show what a published artifact holds", description=__doc__, epilog=_EXAMPLE
    )
    parser.add_argument("artifact", metavar="URI", help="the artifact's folder, or its manifest.json")
    parser.add_argument("--json", action="store_true", help="print the manifest itself")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the manifest."""
    manifest = read_manifest(arguments.artifact)
    if arguments.json:
        print(manifest.model_dump_json(indent=2))
        return 0
    console = Console()
    console.print(_overview(manifest))
    for tower in manifest.towers:
        console.print(_inputs(tower))
        console.print(_verification(tower))
    return 0


def _overview(manifest: Manifest) -> Table:
    table = Table(title=f"artifact {manifest.job_id}", show_header=False, title_justify="left")
    versions = manifest.versions
    rows = {
        "family": manifest.family,
        "mode, device": f"{manifest.mode}, {manifest.device} ({manifest.architecture})",
        "largest batch": str(manifest.max_batch_size),
        "created": manifest.created_at,
        "versions": f"slipway {versions.slipway}, torch {versions.torch}, {versions.fbgemm}",
        "import before loading": ", ".join(manifest.op_libraries) or "nothing",
    }
    rows |= {source.role: f"{source.uri}  sha256 {source.sha256[:16]}…" for source in manifest.sources}
    rows |= {
        f"{tower.name} package": f"{tower.package.path}  {tower.package.size:,} bytes  "
        f"sha256 {tower.package.sha256[:16]}…"
        for tower in manifest.towers
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _inputs(tower: TowerEntry) -> Table:
    table = Table(
        "tensor", "dtype", "shape", title=f"{tower.name} tower, {tower.view} view", title_justify="left"
    )
    for tensor in (*tower.inputs, *tower.outputs):
        table.add_row(tensor.name, tensor.dtype, " × ".join(str(size) for size in tensor.shape))
    for dim in tower.dims:
        high = "unbounded" if dim.high is None else f"{dim.high:,}"
        table.add_row(f"dim {dim.name}", f"{dim.low} to {high}", dim.reason)
    return table


def _verification(tower: TowerEntry) -> Table:
    report = tower.verified
    table = Table(
        "case",
        "sizes",
        "result",
        title=f"{tower.name} verified: largest difference {report.largest_difference:.2g}, "
        f"allowed {report.tolerance:g} of the output's scale",
        title_justify="left",
    )
    for case in report.cases:
        close = "refused" if case.largest_difference is None else f"{case.largest_difference:.2g}"
        table.add_row(case.name, _sizes(case.sizes), close)
    return table


def _sizes(sizes: Mapping[str, int]) -> str:
    """Dims of one size together, named by the first: "batch 3, seq_clicks 218, tags and 5 others 9"."""
    names: dict[int, list[str]] = {}
    for name, size in sizes.items():
        names.setdefault(size, []).append(name)
    others = {1: "", 2: " and another"}
    return ", ".join(
        f"{first[0]}{others.get(len(first), f' and {len(first) - 1} others')} {size}"
        for size, first in names.items()
    )
