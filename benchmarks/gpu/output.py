"""The end of an STU layer: both ways the operator may go, eager PyTorch and `torch.compile`.

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
WIDTHS = ((128, 0), (256, 0), (512, 0), (256, 4))  # and heads that are normed one by one; 0: all together
_TRIED_AT = 32_768


@dataclass(frozen=True, kw_only=True)
class OutputFigures:
    """Of one size: milliseconds, and what one kernel reaches of the device's matrix rate."""

    elements: int
    width: int
    heads: int
    tiles: Tiles
    eager_ms: Spread
    compiled_ms: Spread | None  # None: it could not be compiled
    gated_ms: Spread  # a kernel up to the product, then cuBLAS
    gate_ms: Spread  # that kernel alone
    fused_ms: Spread  # one kernel
    fused_of_matrix_rate: float
    gate_of_copy_rate: float
    is_fused: bool  # what the operator does
    failed: str  # why nothing could be compiled, if so

    @property
    def pays(self) -> str:
        return "fused" if self.fused_ms.median < self.gated_ms.median else "gated"


@dataclass(frozen=True, kw_only=True)
class TilesTried:
    """One kernel in other tiles, at 32,768 elements."""

    width: int
    heads: int
    tiles: Tiles
    milliseconds: float | None  # None: they do not fit


Figure = OutputFigures | TilesTried | Missing


def tried(of: tuple[int, int]) -> list[TilesTried]:
    """Every shape of tiles for a width and heads, the fastest first."""
    width, heads = of
    layer = Layer.of(_TRIED_AT, width, width, heads=heads)
    found = [
        TilesTried(width=width, heads=heads, tiles=tiles, milliseconds=_once(layer, tiles))
        for tiles in _shapes(width, heads)
    ]
    return sorted(found, key=lambda each: each.milliseconds or float("inf"))


def measure(ceilings: Ceilings, left_s: Callable[[], float]) -> Iterator[Figure]:
    """Every width at every number of elements, and how the tiles were chosen."""
    for of in WIDTHS:
        for shapes in of_each([of], tried, left_s):
            if isinstance(shapes, Missing):
                yield shapes
                continue
            yield from shapes
            torch.compiler.reset()
            cases = [(elements, *of) for elements in ELEMENTS]
            yield from of_each(cases, partial(_measured, tiles=shapes[0].tiles, ceilings=ceilings), left_s)


def shown(found: Sequence[Figure]) -> str:
    """As a table, in microseconds, and below it what is not in it."""
    figures = [each for each in found if isinstance(each, OutputFigures)]
    missing = [str(each) for each in found if isinstance(each, Missing)]

    def us(spread: Spread | None) -> str:
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
                us(each.eager_ms),
                us(each.compiled_ms),
                us(each.gated_ms),
                us(each.gate_ms),
                us(each.fused_ms),
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


def _measured(of: tuple[int, int, int], *, tiles: Tiles, ceilings: Ceilings) -> OutputFigures:
    elements, width, heads = of
    layer = Layer.of(elements, width, width, heads=heads)
    compiled = torch.compile(_in_torch, dynamic=True)
    y = layer.uvqk.new_empty((elements, 3 * width))
    works: list[Work] = [
        lambda: _in_torch(layer),
        lambda: _gated(layer),
        lambda: _gate_into(y, layer),
        lambda: _fused(layer, tiles),
    ]
    if not (failed := failure_of(lambda: compiled(layer))):
        works.append(lambda: compiled(layer))
    times = milliseconds([_replayed(work) for work in works])
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


def _in_torch(layer: Layer) -> Tensor:
    return gated_output_in_torch(
        layer.x, layer.uvqk, layer.attended, layer.weight, layer.norm, u_column=layer.u_column
    )


def _gate_into(y: Tensor, layer: Layer) -> None:
    gate_into(y, layer.uvqk, layer.attended, layer.norm, u_column=layer.u_column, kernel=gate_kernel)


def _gated(layer: Layer) -> Tensor:
    y = layer.uvqk.new_empty((len(layer.x), layer.weight.shape[0]))
    _gate_into(y, layer)
    return torch.addmm(layer.x, y, layer.weight)


def _fused(layer: Layer, tiles: Tiles) -> Tensor:
    out = torch.empty_like(layer.x)
    layer.fused_into(out, tiles)
    return out


def _shapes(width: int, heads: int) -> list[Tiles]:
    """The operator's own, and others; a head that is normed by itself is one step."""
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


def _once(layer: Layer, tiles: Tiles) -> float | None:
    try:
        return Spread.of(milliseconds([_replayed(lambda: _fused(layer, tiles))])[0]).median
    except Exception:  # noqa: BLE001  Triton's errors, of resources above all, have no common ancestor
        return None


def _replayed(work: Work) -> Work:
    """The same as a CUDA graph. Its first call, before, compiles what is to be compiled."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def recorded(found: Sequence[Figure]) -> dict[str, list[dict[str, object]]]:
    """For JSON."""
    kinds = {"sizes": OutputFigures, "tiles": TilesTried, "missing": Missing}
    return {name: [asdict(each) for each in found if isinstance(each, kind)] for name, kind in kinds.items()}
