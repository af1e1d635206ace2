"""Memory of an export against the size of its table, the largest of which no memory holds.

Each size is one `slipway export` of an item tower, cold, whose checkpoint is a sparse file with real values
at the table's start and end; what is written of zeros has holes as well, so that 40 GB fit on any disk. One
size is measured once more with real values throughout, which takes three times its bytes of disk.
"""

import argparse
import functools
import shutil
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from pydantic import BaseModel
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.command import Run, carry_out, parser_of
from benchmarks.exports import ExportRun, Place, export
from benchmarks.plots import Titles, draw_lines
from benchmarks.report import Report, Table
from benchmarks.spread import rounded, slope
from exporter.checkpoint.keymap import PREFIX
from exporter.config.parse import parse_pipeline_config
from exporter.models.registry import build_model
from exporter.spec import ExportSpec, TowerName

_RECORDED = Path(__file__).parents[1] / "tests" / "fixtures" / "torcheasyrec"
_ROW_BYTES = 64
_SIZES = (0.1e9, 0.4e9, 1e9, 2e9, 4e9, 8e9)  # the slope is theirs
_BEYOND = (40e9,)  # more than the machine's memory: a point of its own
_REAL = 8e9  # once more without holes
_QUICK = (0.1e9, 0.2e9)
_ALLOWED, _ALLOWED_SHARE = 1.5e9, 0.1  # bytes of a rank, and of the table
_LARGE = 50e6  # bytes of a weight that is written in pieces
_PIECE = 4 << 20


class TableRun(BaseModel):
    """One export."""

    table_bytes: int
    real_values: bool
    export: ExportRun
    allowed_share: float  # anonymous memory, against what is allowed

    @classmethod
    def of(cls, table_bytes: int, done: ExportRun, *, real: bool) -> "TableRun":
        share = done.peak.anonymous / (_ALLOWED + _ALLOWED_SHARE * table_bytes)
        return cls(table_bytes=table_bytes, real_values=real, export=done, allowed_share=round(share, 3))


class MemoryFigures(BaseModel):
    """All sizes, and the slopes over those that fit into memory: bytes of memory per byte of table."""

    runs: tuple[TableRun, ...]
    others: tuple[TableRun, ...]  # larger than memory, or of real values
    failed: tuple[str, ...]  # of the others
    anonymous_slope: float
    mapped_slope: float


def main() -> int:
    parser = parser_of("table_memory", __doc__)
    parser.add_argument(
        "--bytes", type=float, action="append", dest="sizes", metavar="N", help="of the table; may repeat"
    )
    given = parser.parse_args()
    return carry_out("table_memory", given, functools.partial(measure, given))


def measure(given: argparse.Namespace, run: Run) -> Report:
    """Each size once: it is the slope that is asked for, and the line is fitted to all of them."""
    sizes = given.sizes or (_QUICK if run.quick else _SIZES)
    runs = [_one(run, int(size), real=False) for size in sizes]
    asked = [] if given.sizes else [(_QUICK[0] if run.quick else _REAL, True)]
    asked += [] if given.sizes or run.quick else [(size, False) for size in _BEYOND]
    others, failed = [], []
    for size, real in asked:
        try:
            others.append(_one(run, int(size), real=real))
        except SystemExit as error:  # the sizes before it have been measured all the same
            failed.append(f"{size / 1e9:g} GB: {error}")
    tables_ = [float(each.table_bytes) for each in runs]
    figures = MemoryFigures(
        runs=tuple(runs),
        others=tuple(others),
        failed=tuple(failed),
        anonymous_slope=slope(tables_, [each.export.peak.anonymous for each in runs]),
        mapped_slope=slope(tables_, [each.export.peak.mapped for each in runs]),
    )
    return Report(figures=figures, tables=tables(figures), draw=functools.partial(draw, figures))


def _one(run: Run, table_bytes: int, *, real: bool) -> TableRun:
    folder = run.folder / f"{table_bytes}-{real}"
    folder.mkdir()
    config = folder / "pipeline.config"
    text = (_RECORDED / "hstu_match" / "pipeline.config").read_text()
    config.write_text(text.replace("num_buckets: 2000\n", f"num_buckets: {table_bytes // _ROW_BYTES}\n"))
    spec = ExportSpec(
        config_uri=config.as_uri(),
        checkpoint_uri=str(_write_checkpoint(folder / "checkpoint", config.read_text(), real=real)),
        item_input_uri=str(_RECORDED / "data" / "items.parquet"),
        output_uri=str(folder / "out"),
        towers=(TowerName.ITEM,),
        ranks=1,
    )
    done = export(spec, Place(folder=folder, compiler=folder / "compiler"), watched=True)
    shutil.rmtree(folder)
    run.say(f"{table_bytes / 1e9:g} GB: anonymous {done.peak.anonymous / 1e9:.2f} GB, {done.attempt_s:.0f} s")
    return TableRun.of(table_bytes, done, real=real)


def _write_checkpoint(folder: Path, config: str, *, real: bool) -> Path:
    """Weights as a new model has them, but the large table, which is written in pieces."""
    with torch.device("meta"):
        whole = build_model(parse_pipeline_config(config)).state_dict()
    weights = {f"{PREFIX}{name}": tensor for name, tensor in whole.items()}
    folder.mkdir()
    small = {name: _drawn(tensor) for name, tensor in weights.items() if tensor.nbytes < _LARGE}
    save_file(small, folder / "small.safetensors")
    for number, name in enumerate(sorted(weights.keys() - small.keys())):
        _write_large(folder / f"large-{number}.safetensors", name, weights[name], real=real)
    return folder


def _drawn(tensor: Tensor) -> Tensor:
    values = torch.rand(tensor.shape)
    return (
        values.to(tensor.dtype) if tensor.is_floating_point() else torch.ones(tensor.shape).to(tensor.dtype)
    )


def _write_large(path: Path, name: str, tensor: Tensor, *, real: bool) -> None:
    """A table of numbers drawn piece by piece; if they are not to be real, with a hole in the middle."""
    entry = f'{{"{name}":{{"dtype":"F32","shape":{list(tensor.shape)},"data_offsets":[0,{tensor.nbytes}]}}}}'
    text = entry.encode()
    text += b" " * (-(len(text) + 8) % 64)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        pieces = range(0, tensor.nbytes, _PIECE) if real else (0, tensor.nbytes - _PIECE)
        for start in pieces:
            file.seek(8 + len(text) + start)
            file.write(torch.rand(min(_PIECE, tensor.nbytes - start) // 4).numpy().data)


def tables(figures: MemoryFigures) -> tuple[Table, ...]:
    """The slopes, and each size."""
    slopes = Table(
        title="Bytes of memory per byte of table, over the sizes that fit into memory",
        columns=("anonymous", "mapped"),
        rows=((f"{figures.anonymous_slope:.4f}", f"{figures.mapped_slope:.3f}"),),
    )
    rows = tuple(
        (
            f"{each.table_bytes / 1e9:g} GB" + (", real values" if each.real_values else ""),
            f"{each.export.peak.anonymous / 1e9:.2f} GB",
            rounded(each.allowed_share, 2),
            f"{each.export.peak.mapped / 1e9:.2f} GB",
            f"{each.export.attempt_s:.0f}",
        )
        for each in (*figures.runs, *figures.others)
    )
    rows += tuple((each.partition(":")[0], "failed", "", "", "") for each in figures.failed)
    columns = ("table", "anonymous", "of 1.5 GB and a tenth of the table", "mapped", "seconds")
    return (slopes, Table(title="Peaks over all processes of the job", columns=columns, rows=rows))


def draw(figures: MemoryFigures, figure: Figure) -> None:
    """Peaks over the table's size, and what is allowed."""
    gigabytes = [each.table_bytes / 1e9 for each in figures.runs]
    lines = {
        "anonymous": [each.export.peak.anonymous / 1e9 for each in figures.runs],
        "mapped": [each.export.peak.mapped / 1e9 for each in figures.runs],
        "allowed: 1.5 GB and a tenth": [(_ALLOWED / 1e9) + _ALLOWED_SHARE * each for each in gigabytes],
    }
    titles = Titles(title="Peak memory of an export", x="table, GB", y="GB")
    draw_lines(figure.subplots(), gigabytes, lines, titles)


if __name__ == "__main__":
    sys.exit(main())
