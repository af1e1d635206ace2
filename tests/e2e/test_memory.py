"""Memory of an export does not grow with its largest table, in any of its processes."""

import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from benchmarks.measure.process_memory import memory_of, process_tree
from exporter.config.parse import parse_pipeline_config
from exporter.models.registry import build_model
from tests.e2e.conftest import FIXTURES, export_command

pytestmark = pytest.mark.slow

ROW_BYTES = 64
SIZES = (100_000_000, 800_000_000)


@dataclass
class Peaks:
    """Most bytes at one moment: of the whole family without a file behind them, and of what runs packages."""

    anonymous: int = 0
    verifying: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self, root: int) -> None:
        while not self.ended.wait(0.1):
            now = {pid: memory_of(pid) for pid in process_tree(root)}
            self.anonymous = max(self.anonymous, sum(each.anonymous for each in now.values()))
            for pid, memory in now.items():
                if b".wrapper.so" in maps_of(pid):  # it has a package's code loaded
                    self.verifying = max(self.verifying, memory.anonymous)


def maps_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""


def write_model(folder: Path, table_bytes: int) -> tuple[Path, Path]:
    """A config with one large table, and weights of which the table is a hole in its file."""
    text = (FIXTURES / "hstu_match" / "pipeline.config").read_text()
    config, checkpoint = folder / "pipeline.config", folder / "checkpoint"
    config.write_text(text.replace("num_buckets: 2000\n", f"num_buckets: {table_bytes // ROW_BYTES}\n"))
    checkpoint.mkdir()
    with torch.device("meta"):
        weights = build_model(parse_pipeline_config(config.read_text())).state_dict()
    [table] = [name for name, value in weights.items() if value.nbytes > 50_000_000]
    small = {
        f"model.{name}": torch.ones_like(value, device="cpu")
        for name, value in weights.items()
        if name != table
    }
    save_file(small, checkpoint / "small.safetensors")
    shape, size = list(weights[table].shape), weights[table].nbytes
    head = f'{{"model.{table}":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{size}]}}}}'.encode()
    head += b" " * (-(len(head) + 8) % 64)
    with (checkpoint / "table.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + size)
    return config, checkpoint


def peaks_of(folder: Path, table_bytes: int) -> Peaks:
    folder.mkdir()
    config, checkpoint = write_model(folder, table_bytes)
    command = [*export_command("hstu_match", folder / "out"), "--config", str(config)]
    command += ["--checkpoint", str(checkpoint), "--tower", "item", "--code-cache", "off"]
    peaks = Peaks()
    with subprocess.Popen([sys.executable, "-m", "cli.main", *command], stdout=subprocess.DEVNULL) as export:
        watch = threading.Thread(target=peaks.watch, args=(export.pid,))
        watch.start()
        status = export.wait()
        peaks.ended.set()
        watch.join()
    assert status == 0
    return peaks


def test_anonymous_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    small, large = (peaks_of(tmp_path / str(size), size) for size in SIZES)
    assert large.anonymous - small.anonymous < 0.1 * SIZES[1]
    assert large.anonymous < 1.5e9
    assert small.verifying > 0  # else no process was seen to run a package
    assert abs(large.verifying - small.verifying) < 0.1 * SIZES[1]
    [package] = tmp_path.rglob(f"{SIZES[1]}/out/*/item/aoti/aoti_model.pt2")
    assert package.stat().st_size > SIZES[1]  # and so it was mapped, in the process that ran it as well
