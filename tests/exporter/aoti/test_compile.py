"""Compiled packages of unusual towers can be loaded and run."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exporter.aoti.torch_loader import Package
from exporter.trace.trace_tower import trace_tower
from tests.compiled_package import compile_package
from tests.exporter.families.conftest import WeightedFamily, blueprint_of


class Weightless(nn.Module):
    """Computes from its inputs only; it has one weight and does not read it."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = nn.Parameter(torch.ones(1))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"products": inputs["ids"].unsqueeze(1) * inputs["weights"]}


@pytest.mark.slow
def test_a_program_that_reads_no_weights_is_packaged(tmp_path: Path) -> None:
    tower = blueprint_of(WeightedFamily(Weightless())).build()
    ids, weights, counts = torch.arange(7), torch.rand(7, 1), torch.tensor([2, 3, 2, 0, 0])
    inputs = {"counts": counts, "ids": ids, "weights": weights}
    package = Package(
        compile_package(trace_tower(tower, inputs, torch.device("cpu")), tmp_path / "tower.pt2")
    )
    torch.testing.assert_close(package(inputs)["products"], ids.unsqueeze(1) * weights)
