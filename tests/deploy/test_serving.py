"""The serving guide, tried: packages in C++, with input checks, and with newer weights."""

import shutil
import subprocess
import sys
from pathlib import Path

import fbgemm_gpu  # what op_libraries names
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from exporter.aoti.torch_private import sizes_zero_and_one_stay_dynamic
from tests.architecture.tree import ROOT
from tests.compiled_package import compile_package

CMAKE = Path(sys.executable).parent / "cmake"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CMAKE.exists() or shutil.which("g++") is None, reason="no C++ compiler"),
]
OPERATORS = Path(fbgemm_gpu.__file__).parent


class Tower(nn.Module):
    """Sums rows of a table by lengths, with an operator of fbgemm, and computes."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.table = nn.Embedding(50, width)
        self.dense = nn.Linear(width, 3)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        ends = torch.ops.fbgemm.asynchronous_complete_cumsum(inputs["id.lengths"])
        rows = self.table(inputs["id.values"]).cumsum(0)
        padded = torch.cat([torch.zeros(1, rows.shape[1]), rows])
        return {"emb": self.dense(padded[ends[1:]] - padded[ends[:-1]])}


INPUTS = {"id.lengths": torch.tensor([2, 0, 1, 2]), "id.values": torch.tensor([1, 2, 3, 4, 5])}


def packaged(tower: Tower, path: Path) -> Path:
    batch, values = Dim("batch", min=0, max=64), Dim("values", min=0, max=640)
    dims = ({"id.lengths": {0: batch}, "id.values": {0: values}},)
    with torch.no_grad(), sizes_zero_and_one_stay_dynamic():
        program = export(tower.eval(), (INPUTS,), dynamic_shapes=dims, strict=False)
    compile_package(program, path)
    return path


@pytest.fixture(scope="module")
def towers() -> list[Tower]:
    torch.manual_seed(1)
    return [Tower(), Tower()]


@pytest.fixture(scope="module")
def packages(towers: list[Tower], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An older package and a newer one of the same model."""
    folder = tmp_path_factory.mktemp("packages")
    return [packaged(tower, folder / f"{number}.pt2") for number, tower in enumerate(towers)]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """examples/cpp_runner, as its own comments say to build it."""
    build = tmp_path_factory.mktemp("cpp")
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    source = str(ROOT / "examples" / "cpp_runner")
    for command in (
        [str(CMAKE), "-S", source, "-B", str(build), prefix],
        [str(CMAKE), "--build", str(build)],
    ):
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
    return build / "cpp_runner"


def run(
    runner: Path, folder: Path, *options: str, inputs: dict[str, Tensor]
) -> subprocess.CompletedProcess[str]:
    torch.save(inputs, folder / "inputs.pt")
    command = [str(runner), "--libraries", str(OPERATORS), "--inputs", str(folder / "inputs.pt"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def numbers(ran: subprocess.CompletedProcess[str]) -> Tensor:
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stdout.splitlines()
    shape, _, values = line.partition(" ")
    sizes = [int(size) for size in shape.strip("[]").split(",")]
    return torch.tensor([float(value) for value in values.split()]).reshape(sizes)


def test_a_package_runs_in_cpp(
    runner: Path, packages: list[Path], towers: list[Tower], tmp_path: Path
) -> None:
    ran = run(runner, tmp_path, "--package", str(packages[0]), inputs=INPUTS)
    torch.testing.assert_close(numbers(ran), towers[0](INPUTS)["emb"].detach())


def test_sizes_outside_the_contract_are_refused_in_cpp(
    runner: Path, packages: list[Path], tmp_path: Path
) -> None:
    too_many = {
        "id.lengths": torch.ones(65, dtype=torch.int64),
        "id.values": torch.ones(65, dtype=torch.int64),
    }
    ran = run(runner, tmp_path, "--package", str(packages[0]), inputs=too_many)
    assert ran.returncode == 1 and "64" in ran.stderr, ran.stderr


def test_newer_weights_are_taken_in_cpp(
    runner: Path, packages: list[Path], towers: list[Tower], tmp_path: Path
) -> None:
    options = ("--package", str(packages[0]), "--weights", str(packages[1]))
    ran = run(runner, tmp_path, *options, inputs=INPUTS)
    torch.testing.assert_close(numbers(ran), towers[1](INPUTS)["emb"].detach())
