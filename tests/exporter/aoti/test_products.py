"""Biases are added where products are read."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from exporter.aoti.compile import compile_code
from exporter.aoti.load import load_package
from exporter.aoti.torch_private import sizes_zero_and_one_stay_dynamic


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(7, 5), nn.Linear(5, 3)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        hidden = self.first(x).relu()
        return {
            "y": self.last(hidden),
            "residual": torch.addmm(x[:, :5], hidden, self.first.weight[:, :5]),
            "scaled": torch.addmm(self.last.bias, hidden, self.last.weight.T, beta=0.5),
        }


@pytest.mark.slow
@torch.no_grad()
def test_a_package_adds_biases_without_a_pass_of_their_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, dims = Layers().eval(), {"x": {0: Dim("n", max=1000)}}
    with sizes_zero_and_one_stay_dynamic():
        program = torch.export.export(
            module, ({"x": torch.randn(6, 7)},), dynamic_shapes=(dims,), strict=False
        )
    code = compile_code(program)
    (wrapper,) = (text.decode() for name, text in code.files.items() if name.endswith("wrapper.cpp"))
    assert wrapper.count("aoti_torch_cpu_addmm_out(") == 1  # the one that scales its bias
    assert wrapper.count("aoti_torch_cpu_mm_out(") == 3
    path = code.assemble(program.state_dict, tmp_path / "layers.pt2").path
    package = load_package(path, torch.device("cpu"))
    for rows in (0, 1, 6, 333):
        x = torch.randn(rows, 7)
        torch.testing.assert_close(package({"x": x}), module({"x": x}))
