"""A small program, compiled once: a table, a layer, and a constant of the model's own code."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional as F

from exporter.aoti.code import CompiledCode
from exporter.aoti.compile import compile_code

ROWS, WIDTH = 40, 6


class Scores(nn.Module):
    """A table and a layer, zeros when new; a mask that the checkpoint holds, and one that the code does."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)
        self.layer = nn.Linear(WIDTH, 3)
        self.slope = nn.Parameter(torch.zeros(1))  # of one number, as PReLU's
        self.register_buffer("mask", torch.zeros(3))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        steps = torch.tensor([1.0, 10.0, 100.0])
        rows = F.prelu(self.table(inputs["ids"]) - 1.5, self.slope)
        return {"scores": (self.layer(rows) + self.mask) * steps}


def scores(seed: int) -> Scores:
    """A module whose every weight is drawn from `seed`."""
    generator = torch.Generator().manual_seed(seed)
    module = Scores()
    for tensor in module.state_dict().values():
        tensor.copy_(torch.rand(tensor.shape, generator=generator) + seed)
    return module


@dataclass(frozen=True)
class Compiled:
    """A program, its code, and what compiling reported on the way."""

    program: ExportedProgram
    code: CompiledCode
    details: tuple[str, ...]


@pytest.fixture(scope="session")
def ids() -> dict[str, Tensor]:
    return {"ids": torch.arange(0, ROWS, 3)}


@pytest.fixture(scope="session")
def compiled(ids: dict[str, Tensor]) -> Compiled:
    """Compiled from a module whose every weight is zero, which a compiler might be tempted to fold."""
    dims = {"ids": {0: Dim("n", min=0, max=1000)}}
    with torch.no_grad():
        program = torch.export.export(Scores(), (ids,), dynamic_shapes=(dims,), strict=False)
    details: list[str] = []
    code = compile_code(program, lambda fraction, detail: details.append(detail))
    return Compiled(program, code, tuple(details))
