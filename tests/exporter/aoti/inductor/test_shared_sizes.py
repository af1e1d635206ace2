"""A package refuses inputs of which one has fewer rows than the others, with every release of torch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.compiled_package import compile_package

ROOT = Path(__file__).parents[4]

# Run with a package as argument: prints the shape for inputs that fit, and whether others are refused.
_CALL = """
import sys
from pathlib import Path
import torch
from exporter.aoti.torch_loader import Package

package = Package(Path(sys.argv[1]))
print(list(package({"a": torch.ones(5, 2), "b": torch.ones(5)})["sum"].shape))
for rows in ((5, 4), (4, 5)):
    try:
        print(package({"a": torch.ones(rows[0], 2), "b": torch.ones(rows[1])}))
    except RuntimeError as error:
        print("refused", "size" in str(error) or "dim value" in str(error))
"""


class _Sum(nn.Module):
    """Adds rows of two inputs, of which nothing but their sizes says that they belong together."""

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sum": inputs["a"] * 2 + inputs["b"].unsqueeze(1)}


@pytest.mark.slow  # compiles a package
def test_a_package_refuses_inputs_of_different_numbers_of_rows(tmp_path: Path) -> None:
    rows = Dim("rows", min=0, max=100)
    inputs = {"a": torch.rand(3, 2), "b": torch.rand(3)}
    dims = {"a": {0: rows}, "b": {0: rows}}
    program = torch.export.export(_Sum(), (inputs,), dynamic_shapes=(dims,), strict=False)
    package = compile_package(program, tmp_path / "sum.pt2")
    answer = subprocess.run(
        [
            "env",
            "AOTI_RUNTIME_CHECK_INPUTS=1",
            f"PYTHONPATH={ROOT}",
            sys.executable,
            "-c",
            _CALL,
            str(package),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split("\n")[:3] == ["[5, 2]", "refused True", "refused True"], answer.stderr
