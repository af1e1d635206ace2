"""Memory of an export against the size of its table: `python -m benchmarks.table_memory --bytes 8e9`.

Each size is one `slipway export` of an item tower, cold, whose checkpoint is a sparse file; a package of
zeros has holes as well, so that 40 GB fit on any disk. Values at the table's start and end are real.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from pydantic import BaseModel
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.process_memory import MemoryWatch, Peak
from exporter.config.parse import parse_pipeline_config
from exporter.manifest import TowerEntry
from exporter.models.registry import build_model
from exporter.publish import read_manifest

_RECORDED = Path(__file__).parents[1] / "tests" / "fixtures" / "torcheasyrec"
_RESULTS = Path(__file__).parent / "results"
_ROW_BYTES = 64
_SIZES = (100e6, 1e9, 4e9, 8e9)


class TableRun(BaseModel):
    """One export."""

    table_bytes: int
    peak: Peak
    seconds: float
    tower: TowerEntry


def main() -> None:
    """Measure each size and write `results/table_memory.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=float, action="append", dest="sizes", help="of the table; may repeat")
    parser.add_argument("--folder", type=Path, help="where to work; it needs the disk of two packages")
    parser.add_argument("--results", type=Path, default=_RESULTS)
    arguments = parser.parse_args()
    runs = [measure(int(size), arguments.folder) for size in arguments.sizes or _SIZES]
    arguments.results.mkdir(exist_ok=True)
    lines = ",\n".join(run.model_dump_json() for run in runs)
    (arguments.results / "table_memory.json").write_text(f"[{lines}]\n")


def measure(table_bytes: int, parent: Path | None) -> TableRun:
    """Export once, and watch."""
    with tempfile.TemporaryDirectory(dir=parent, prefix="table-memory-") as name:
        folder = Path(name)
        config = _write_config(folder, table_bytes // _ROW_BYTES)
        checkpoint = _write_checkpoint(folder, config)
        begun = time.monotonic()
        export = subprocess.Popen(_command(folder, config, checkpoint))
        with export, MemoryWatch(export.pid) as watch:
            status = export.wait()
        assert status == 0, "the export failed"
        [artifact] = (folder / "out").iterdir()
        [tower] = read_manifest(str(artifact)).towers
        run = TableRun(
            table_bytes=table_bytes, peak=watch.peak, seconds=time.monotonic() - begun, tower=tower
        )
    sys.stdout.write(run.model_dump_json(exclude={"tower"}) + "\n")
    return run


def _command(folder: Path, config: Path, checkpoint: Path) -> list[str]:
    (folder / "tmp").mkdir()
    return [
        *("env", f"TMPDIR={folder / 'tmp'}", sys.executable, "-m", "cli.main", "export"),
        *("--config", str(config), "--checkpoint", str(checkpoint), "--tower", "item", "--ranks", "1"),
        *("--item-input", str(_RECORDED / "data" / "items.parquet")),
        *("--output", str(folder / "out"), "--code-cache", "off"),
    ]


def _write_config(folder: Path, rows: int) -> Path:
    text = (_RECORDED / "hstu_match" / "pipeline.config").read_text()
    path = folder / "pipeline.config"
    path.write_text(text.replace("num_buckets: 2000\n", f"num_buckets: {rows}\n"))
    return path


def _write_checkpoint(folder: Path, config: Path) -> Path:
    """Weights as a new model has them, but the large table: a hole between two real ends."""
    with torch.device("meta"):
        whole = build_model(parse_pipeline_config(config.read_text())).state_dict()
    weights = {f"model.{name}": tensor for name, tensor in whole.items()}
    folder = folder / "checkpoint"
    folder.mkdir()
    small = {name: _drawn(tensor) for name, tensor in weights.items() if tensor.nbytes < 50_000_000}
    save_file(small, folder / "small.safetensors")
    for number, name in enumerate(sorted(weights.keys() - small.keys())):
        _write_sparse(folder / f"large-{number}.safetensors", name, weights[name])
    return folder


def _drawn(tensor: Tensor) -> Tensor:
    values = torch.rand(tensor.shape)
    return (
        values.to(tensor.dtype) if tensor.is_floating_point() else torch.ones(tensor.shape).to(tensor.dtype)
    )


def _write_sparse(path: Path, name: str, tensor: Tensor) -> None:
    entry = f'{{"{name}":{{"dtype":"F32","shape":{list(tensor.shape)},"data_offsets":[0,{tensor.nbytes}]}}}}'
    text = entry.encode()
    text += b" " * (-(len(text) + 8) % 64)
    end = torch.rand(4096, 16).numpy().tobytes()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + end)
        file.seek(8 + len(text) + tensor.nbytes - len(end))
        file.write(end)


if __name__ == "__main__":
    main()
