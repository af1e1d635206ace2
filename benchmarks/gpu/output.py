"""Measure the end of an STU layer: both forms of the operator, eager PyTorch and `torch.compile`.

bf16, as wide after as before attention. Each way is replayed as a CUDA graph: what a package costs, not what
Python adds. The kernel that does all of it is tried in several tiles, and measured in the fastest.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.gpu.cases.output import Layer
from benchmarks.gpu.device_timing import (
    Ceilings,
    Missing,
    Spread,
    Work,
    failure_of,
    milliseconds,
    of_each,
    table,
)
from exporter.models.hstu.kernels.output import (
    Tiles,
    gate_into,
    gated_output_in_torch,
    is_fused,
    tiles_for,
)
from exporter.models.hstu.kernels.output_kernel import gate_kernel

ELEMENTS = (2048, 32_768, 262_144)
WIDTHS = ((128, 0), (256, 0), (512, 0), (256, 4))  # width, and heads normed one by one (0: all together)
_TRIED_AT = 32_768


@dataclass(frozen=True, kw_only=True)
class OutputFigures:
    """Figures of one size: milliseconds, and one kernel's share of the device's matrix rate."""

    elements: int
    width: int
    heads: int
    tiles: Tiles
    eager_ms: Spread
    compiled_ms: Spread | None  # None if it could not be compiled
    gated_ms: Spread  # a kernel up to the product, then cuBLAS
    gate_ms: Spread  # that kernel alone
    fused_ms: Spread  # one kernel
    fused_of_matrix_rate: float
    gate_of_copy_rate: float
    is_fused: bool  # the form that the operator chooses
    failed: str  # why nothing could be compiled, or ""

    @property
    def pays(self) -> str:
        return "fused" if self.fused_ms.median < self.gated_ms.median else "gated"


@dataclass(frozen=True, kw_only=True)
class TileFigures:
    """Time of one kernel with one shape of tiles, at 32,768 elements."""

    width: int
    heads: int
    tiles: Tiles
    milliseconds: float | None  # None if the tiles do not fit


Figure = OutputFigures | TileFigures | Missing


def time_tiles(of: tuple[int, int]) -> list[TileFigures]:
    """Time every shape of tiles for a width and heads; return the fastest first."""
    width, heads = of
    layer = Layer.of(_TRIED_AT, width, width, heads=heads)
    found = [
        TileFigures(width=width, heads=heads, tiles=tiles, milliseconds=_time_once(layer, tiles))
        for tiles in _shapes(width, heads)
    ]
    return sorted(found, key=lambda each: each.milliseconds or float("inf"))


def measure(ceilings: Ceilings, left_s: Callable[[], float]) -> Iterator[Figure]:
    """Measure every width at every number of elements, and yield the times that chose the tiles."""
    for of in WIDTHS:
        for shapes in of_each([of], time_tiles, left_s):
            if isinstance(shapes, Missing):
                yield shapes
                continue
            yield from shapes
            torch.compiler.reset()
            cases = [(elements, *of) for elements in ELEMENTS]
            yield from of_each(
                cases, partial(_measure_case, tiles=shapes[0].tiles, ceilings=ceilings), left_s
            )


def format_figures(found: Sequence[Figure]) -> str:
    """Format the figures as a table in microseconds, followed by the cases that are missing."""
    figures = [each for each in found if isinstance(each, OutputFigures)]
    missing = [str(each) for each in found if isinstance(each, Missing)]

    def format_us(spread: Spread | None) -> str:
        return f"{spread.median * 1000:.0f}" if spread else "-"

    columns = (
        "N",
        "E = D",
        "heads",
        "eager",
        "compiled",
        "gated",
        "of it gate",
        "fused us",
        "of matrix rate",
    )
    shown = table(
        (*columns, "gate of copy rate", "tiles", "pays", "operator"),
        [
            (
                str(each.elements),
                str(each.width),
                str(each.heads or "-"),
                format_us(each.eager_ms),
                format_us(each.compiled_ms),
                format_us(each.gated_ms),
                format_us(each.gate_ms),
                format_us(each.fused_ms),
                f"{each.fused_of_matrix_rate:.2f}",
                f"{each.gate_of_copy_rate:.2f}",
                "{rows}x{columns}x{step} w{warps} s{stages}".format(**asdict(each.tiles)),
                each.pays,
                "fused" if each.is_fused else "gated",
            )
            for each in figures
        ],
    )
    failed = [
        f"{each.elements} {each.width}: compiled failed: {each.failed}" for each in figures if each.failed
    ]
    return "\n".join([shown, *missing, *failed])


def _measure_case(of: tuple[int, int, int], *, tiles: Tiles, ceilings: Ceilings) -> OutputFigures:
    elements, width, heads = of
    layer = Layer.of(elements, width, width, heads=heads)
    compiled = torch.compile(_run_in_torch, dynamic=True)
    y = layer.uvqk.new_empty((elements, 3 * width))
    works: list[Work] = [
        lambda: _run_in_torch(layer),
        lambda: _run_gated(layer),
        lambda: _gate_into(y, layer),
        lambda: _run_fused(layer, tiles),
    ]
    if not (failed := failure_of(lambda: compiled(layer))):
        works.append(lambda: compiled(layer))
    times = milliseconds([_as_graph(work) for work in works])
    eager_ms, gated_ms, gate_ms, fused_ms, *others = (Spread.of(each) for each in times)
    product = 2 * elements * 3 * width * width
    moved = 5 * elements * width * y.itemsize
    return OutputFigures(
        elements=elements,
        width=width,
        heads=heads,
        tiles=tiles,
        eager_ms=eager_ms,
        compiled_ms=others[0] if others else None,
        gated_ms=gated_ms,
        gate_ms=gate_ms,
        fused_ms=fused_ms,
        fused_of_matrix_rate=product / fused_ms.median / 1e9 / ceilings.matrix_tflops,
        gate_of_copy_rate=moved / gate_ms.median / 1e9 / ceilings.copy_tbps,
        is_fused=is_fused(width, width, heads, y.dtype),
        failed=failed,
    )


def _run_in_torch(layer: Layer) -> Tensor:
    return gated_output_in_torch(
        layer.x, layer.uvqk, layer.attended, layer.weight, layer.norm, u_column=layer.u_column
    )


def _gate_into(y: Tensor, layer: Layer) -> None:
    gate_into(y, layer.uvqk, layer.attended, layer.norm, u_column=layer.u_column, kernel=gate_kernel)


def _run_gated(layer: Layer) -> Tensor:
    y = layer.uvqk.new_empty((len(layer.x), layer.weight.shape[0]))
    _gate_into(y, layer)
    return torch.addmm(layer.x, y, layer.weight)


def _run_fused(layer: Layer, tiles: Tiles) -> Tensor:
    out = torch.empty_like(layer.x)
    layer.fused_into(out, tiles)
    return out


def _shapes(width: int, heads: int) -> list[Tiles]:
    """Return the operator's own tiles and others; a separately normed head is one step."""
    step = width // heads if heads else 0
    shapes = [
        (128, 128, 32, 8, 2),
        (128, 128, 32, 8, 3),
        (128, 128, 32, 8, 4),
        (128, 128, 64, 8, 2),
        (64, 128, 64, 4, 2),
        (64, 128, 32, 4, 4),
        (64, 256, 32, 8, 3),
        (128, 256, 32, 8, 3),
    ]
    others = [
        Tiles(rows=rows, columns=columns, step=step or of, warps=warps, stages=stages)
        for rows, columns, of, warps, stages in shapes
        if columns <= width
    ]
    return list(dict.fromkeys([tiles_for(width, width, heads, 2), *others]))


def _time_once(layer: Layer, tiles: Tiles) -> float | None:
    try:
        return Spread.of(milliseconds([_as_graph(lambda: _run_fused(layer, tiles))])[0]).median
    except Exception:  # noqa: BLE001  Triton's errors, mostly about resources, have no common base class
        return None


def _as_graph(work: Work) -> Work:
    """Return the work as a CUDA graph; a first call before the capture compiles it."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def to_json(found: Sequence[Figure]) -> dict[str, list[dict[str, object]]]:
    """Return the figures as JSON values."""
    kinds = {"sizes": OutputFigures, "tiles": TileFigures, "missing": Missing}
    return {name: [asdict(each) for each in found if isinstance(each, kind)] for name, kind in kinds.items()}
