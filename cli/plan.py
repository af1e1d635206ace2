"""`slipway plan`: show which input sizes an export lets vary, which of them vary together, and why."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from cli.options.family import list_families, take_own_family
from exporter.dtypes import Kernel, Precision
from exporter.families.own_code import FamilyFile, GivenModule
from exporter.manifest import DimEntry, TensorEntry
from exporter.towers.plan import PlanRequest, read_config
from service.client.options import add_plan_options, request_of
from service.client.tables import console, table_of
from service.planning import view_of, view_plan
from service.schemas import PlanView, TowerPlan

_EXAMPLE = "example: slipway plan --config pipeline.config --max-batch-size 128"


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `plan`."""
    parser = subparsers.add_parser(
        "plan",
        help="show an export's inputs and their dims, without running it",
        description="Show the inputs of every tower and which of their sizes vary together.",
        epilog=_EXAMPLE,
    )
    add_plan_options(parser)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    if arguments.config is not None and "://" not in arguments.config:
        arguments.config = Path(arguments.config).absolute().as_uri()  # so that errors name the file
    own = take_own_family(arguments)
    view = _view(request_of(arguments, PlanRequest), own)
    if arguments.json:
        print(view.model_dump_json(indent=2))
        return 0
    for title, tensors, dims in _parts(view):
        console().print(_table(title, tensors, dims))
    for tower in view.towers:
        if tower.tables:
            console().print(_tables(tower))
    for tower in view.towers:
        if tower.kernel is Kernel.TRITON:
            console().print(f"{tower.name} tower: on CUDA its HSTU layers are computed by Triton kernels")
    if view.strict_bounds:
        console().print(
            "strict_bounds: the packages will refuse more than the export tries, by dim and by row"
        )
    if view.precision is not Precision.FP32:
        console().print(f"computed in {view.precision} by autocast, outputs in fp32")
    return 0


def _view(request: PlanRequest, own: FamilyFile | GivenModule | None) -> PlanView:
    """Plan the export; a custom family's package is loaded for it, as in an attempt."""
    if request.family is None:
        return view_plan(request)
    from exporter.construction.declared_blueprint import plan_family  # loads torch, as the family does
    from exporter.families.loading import offer_family

    if own is not None:
        offer_family(own)
    return view_of(plan_family(request, read_config(request), families=list_families(own)), request)


def _parts(view: PlanView) -> list[tuple[str, Sequence[TensorEntry], Sequence[DimEntry]]]:
    """Return the tables to print: each tower's inputs, and the tensors between its two packages if any."""
    parts: list[tuple[str, Sequence[TensorEntry], Sequence[DimEntry]]] = []
    for tower in view.towers:
        parts.append((f"{view.family}, {tower.name} tower, {tower.view} view", tower.inputs, tower.dims))
        if tower.group_tensors:
            parts.append((f"{tower.name} tower, between its packages", tower.group_tensors, tower.group_dims))
    return parts


def _tables(tower: TowerPlan) -> Table:
    """Show the dtype and the size of each embedding table."""
    table = table_of(
        "table",
        "rows × width",
        "trained in",
        "dtype",
        "bytes",
        "in fp32",
        "read by",
        title=f"{tower.name} tower, tables",
    )
    for each in tower.tables:
        rows = f"{each.rows:,}" if each.rows else "as in the checkpoint"
        size, fp32 = (f"{number:,}" if each.rows else "unknown" for number in (each.bytes, each.fp32_bytes))
        shape, dtypes = f"{rows} × {each.width}", (each.trained, each.dtype)
        table.add_row(each.name, shape, *dtypes, size, fp32, ", ".join(each.features))
    return table


def _table(title: str, tensors: Sequence[TensorEntry], dims: Sequence[DimEntry]) -> Table:
    table = table_of("input", "axis", "dim", "bounds", "why", title=title)
    by_name = {dim.name: dim for dim in dims}
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, str):
                table.add_row(tensor.name, str(axis), size, _bounds(by_name[size]), by_name[size].reason)
    return table


def _bounds(dim: DimEntry) -> str:
    bounds = f"{dim.low} or more" if dim.high is None else f"{dim.low} to {dim.high:,}"
    if dim.share is None:
        return bounds
    return f"{bounds} ({dim.share.counts}: {'any' if dim.share.high is None else f'{dim.share.high:,}'})"
