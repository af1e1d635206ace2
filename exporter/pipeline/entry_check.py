"""Check a tower's manifest entry against the packages that passed the gate, real inputs, and its files."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from torch import Tensor

from exporter.artifact.errors import ManifestWrong
from exporter.artifact.read import file_ref
from exporter.dims.plan import DimPlan
from exporter.manifest import DimEntry, FileRef, TensorEntry, TowerEntry
from exporter.packages.package_tower import Packaged
from exporter.pipeline.open_tower import OpenedTower
from exporter.pipeline.samples import WrittenSamples, find_altered_samples
from exporter.towers.plan import TowerToExport, UnopenedTower

_ROWS = 3  # of the inputs that entries are compared with


def require_true_entry(
    entry: TowerEntry,
    planned: TowerToExport,
    opened: OpenedTower,
    packaged: Packaged,
    contents: Mapping[str, bytes],
    samples: WrittenSamples | None = None,
) -> None:
    """Check all that a server reads in an entry, by other ways than those that made it.

    `contents` are those of the files beside the packages, `samples` the requests that the gate has passed.

    Raises:
        ManifestWrong: naming the field.
    """
    problems = chain(
        _problems(entry, planned, opened, packaged, contents), _problems_of_samples(entry, samples)
    )
    for field, problem in problems:
        raise ManifestWrong(f"{opened.tower.title}: manifest, {field}: {problem}", where=field)


def _problems(
    entry: TowerEntry,
    planned: TowerToExport,
    opened: OpenedTower,
    packaged: Packaged,
    contents: Mapping[str, bytes],
) -> Iterator[tuple[str, str]]:
    if entry.name is not planned.name:
        yield "name", f"{entry.name}, and the tower is {planned.name}"
    yield from _problems_of_packages(entry, packaged)
    inputs = opened.rows.take(_ROWS).tensors(opened.tower.plan)
    orders = [link.order for link in packaged.runnable.chain]
    if opened.tower.plan.inputs and packaged.runnable.looks_up:
        yield from _problems_of_order("inputs", entry.inputs, orders[0])
    yield from _problems_of_tensors("inputs", entry.inputs, entry.dims, inputs)
    if not isinstance(planned, UnopenedTower):
        yield from _problems_of_order("inputs", entry.inputs, [each.name for each in planned.plan.inputs])
    yield from _problems_of_dims("dims", entry.dims, opened.tower.plan)
    if entry.sparse is not None:
        between = next(packaged.runnable.run_parts(inputs))
        yield from _problems_of_order("sparse.tensors", entry.sparse.tensors, orders[-1])
        yield from _problems_of_tensors("sparse.tensors", entry.sparse.tensors, entry.sparse.dims, between)
    if entry.outputs != tuple(packaged.runnable.outputs):
        yield "outputs", "are not those that the gate has compared with the package's"
    if entry.demands != tuple(opened.tower.served.demands(opened.rows.take(1).tensors(opened.tower.plan))):
        yield "demands", "are not those that the tower was traced with"
    if entry.verified != packaged.report:
        yield "verified", "is not the gate's report on these packages"
    yield from _problems_of_files(entry, contents)


def _problems_of_samples(entry: TowerEntry, written: WrittenSamples | None) -> Iterator[tuple[str, str]]:
    if entry.samples is None or written is None:
        if entry.samples is not None or written is not None:
            yield "samples", "are not those that were written"
        return
    if entry.samples.file != file_ref(entry.samples.file.path, written.file):
        yield "samples", f"{entry.samples.file.path} is not the file that was written"
    for problem in find_altered_samples(entry.samples, written):
        yield "samples", problem


def _problems_of_packages(entry: TowerEntry, packaged: Packaged) -> Iterator[tuple[str, str]]:
    refs = [*([entry.sparse.package] if entry.sparse else []), entry.package]
    links, written = packaged.runnable.chain, packaged.written
    if len(refs) != len(written) or [link.package for link in links] != [w.package.path for w in written]:
        yield "package", "the packages are not those that the gate has run"
    if entry.sparse and entry.sparse.kind is not links[0].kind:
        yield "sparse.kind", f"is {entry.sparse.kind}, and the package is {links[0].kind}"
    for ref, each in zip(refs, written, strict=False):
        path, file = f"{entry.name}/{each.part.path}", each.package
        expected = FileRef(path=path, size=file.size, sha256=file.sha256)
        if ref != expected:
            yield ref.path, f"is {_describe(ref)}, and the package that was written is {_describe(expected)}"


def _describe(ref: FileRef) -> str:
    return f"{ref.path} of {ref.size:,} bytes, sha256 {ref.sha256[:12]}…"


def _problems_of_order(
    field: str, entries: Sequence[TensorEntry], order: Sequence[str]
) -> Iterator[tuple[str, str]]:
    names = [each.name for each in entries]
    if names != list(order):
        yield field, f"are {', '.join(names)}, and the package takes {', '.join(order)}"


def _problems_of_tensors(
    field: str, entries: Sequence[TensorEntry], dims: Sequence[DimEntry], tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, str]]:
    """Yield where entries do not describe real tensors: name, dtype, rank, and each size as its dim says."""
    sizes: dict[str, int] = {}
    known = {dim.name: dim for dim in dims}
    for entry in entries:
        if entry.name not in tensors:
            yield field, f"there is no {entry.name}"
            continue
        tensor = tensors[entry.name]
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype != entry.dtype:
            yield field, f"{entry.name} is said to be {entry.dtype}, and is {dtype}"
        if len(entry.shape) != tensor.dim():
            yield field, f"{entry.name} is said to have shape {list(entry.shape)}, of {tensor.dim()} axes"
        for size, actual in zip(entry.shape, tensor.shape, strict=False):
            if isinstance(size, str) and size not in known:
                yield field, f"{entry.name} has a dim {size}, which is not described"
            elif isinstance(size, str):
                low, high = known[size].low, known[size].high
                if sizes.setdefault(size, actual) != actual or actual < low or actual > (high or actual):
                    yield field, f"{entry.name} is {actual} long in {size}, which is {low} to {high}"
            elif size != actual:
                yield field, f"{entry.name} is said to have shape {list(entry.shape)}: {list(tensor.shape)}"


def _problems_of_dims(field: str, entries: Sequence[DimEntry], plan: DimPlan) -> Iterator[tuple[str, str]]:
    described = {dim.name: (dim.low, dim.high) for dim in entries}
    planned = {dim.name: (dim.low, dim.high) for dim in plan.dims}
    for name in sorted(described.keys() | planned.keys()):
        if described.get(name) != planned.get(name):
            yield (
                field,
                f"{name} is {_bounds(described.get(name))}, and was planned {_bounds(planned.get(name))}",
            )


def _bounds(bounds: tuple[int, int | None] | None) -> str:
    return "not there" if bounds is None else f"{bounds[0]} to {bounds[1]}"


def _problems_of_files(entry: TowerEntry, contents: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    expected = {
        FileRef(path=f"{entry.name}/{name}", size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    }
    for ref in sorted(expected ^ set(entry.files), key=lambda each: each.path):
        yield ref.path, "is not the file that was rendered"
