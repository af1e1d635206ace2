"""examples/cpp_runner, built as its own comments say, and artifacts to run it on."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.architecture.tree import ROOT

CMAKE = Path(sys.executable).parent / "cmake"
CAN_BUILD = CMAKE.exists() and shutil.which("g++") is not None


def build_runner(into: Path, *flags: str, program: str = "examples/cpp_runner/main.cpp") -> None:
    """Build the program, or another one in the same way, in an empty folder with further compiler flags."""
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    source = str(ROOT / "examples" / "cpp_runner")
    chosen = (f"-DPROGRAM={ROOT / program}", f"-DCMAKE_CXX_FLAGS={' '.join(flags)}")
    for command in (
        [str(CMAKE), "-S", source, "-B", str(into), prefix, *chosen],
        [str(CMAKE), "--build", str(into)],
    ):
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr


def run_tower(
    runner: Path, prepared: Path, tower: str, inputs: Mapping[str, Tensor], scratch: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run the program on inputs, which go through a file below `scratch`."""
    file = scratch / "inputs.pt"
    torch.save(dict(inputs), file)
    # Seen by a build with address sanitizer only: torch's containers never free their handles of weights.
    without_leaks = ("env", "ASAN_OPTIONS=detect_leaks=0")
    program = (*without_leaks, str(runner), "--artifact", str(prepared), "--tower", tower)
    command = [*program, "--inputs", str(file), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def outputs_of(ran: subprocess.CompletedProcess[str]) -> dict[str, Tensor]:
    """Return the printed outputs: nine digits are all that a number of fp32 has."""
    assert ran.returncode == 0, ran.stderr
    outputs = {}
    for line in ran.stdout.splitlines():
        name, shape, *values = line.split(" ")
        sizes = [int(size) for size in shape.strip("[]").split(",") if size]
        outputs[name] = torch.tensor([float(value) for value in values]).reshape(sizes)
    return outputs


def copy_prepared(prepared: Path, into: Path) -> Path:
    """Copy a prepared artifact so that its files can be changed."""
    shutil.copytree(prepared, into)
    for path in into.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return into


def rewrite_json(prepared: Path, name: str, change: Any) -> None:
    """Change the manifest or the index of a copy, and make its digests fit: a lie, but no damage."""
    file, index = prepared / name, prepared / "prepared.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    described = json.loads(index.read_text())
    described["manifest_sha256"] = hashlib.sha256((prepared / "manifest.json").read_bytes()).hexdigest()
    index.write_text(json.dumps(described))
    (prepared / "prepared.json.sha256").write_text(hashlib.sha256(index.read_bytes()).hexdigest() + "\n")
