"""The source of a family whose tower calls one of the planted operators, and what an export of it needs."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

_SOURCE = """
import torch
from exporter.families.family import Family, InputDeclaration, TowerDeclaration
from tests.planted import ops
from torch import nn

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(2, 1)

    def forward(self, inputs):
        score = self.scale(inputs["x"]).relu() + 1
        return {{"score": torch.ops.planted.{operator}(score).squeeze(1)}}

class Planted(Family):
    def towers(self, config):
        return [TowerDeclaration(inputs=[InputDeclaration(name="x", dtype="float32", shape=("batch", 2))])]

    def build(self, config, tower):
        return Scaled()
"""


def source(operator: str) -> str:
    """A module that offers the family `Planted`."""
    return _SOURCE.format(operator=operator)


def request(family: str, folder: Path) -> dict[str, str]:
    """A request for its export, with weights and rows that are written to `folder`."""
    save_file({"scale.weight": torch.ones(1, 2), "scale.bias": torch.zeros(1)}, folder / "w.safetensors")
    pq.write_table(pa.table({"x": [[0.5, 1.0]] * 40}), folder / "rows.parquet")
    return {
        "family": family,
        "config": "{}",
        "checkpoint_uri": str(folder / "w.safetensors"),
        "sample_input_uri": str(folder / "rows.parquet"),
        "output_uri": str(folder / "out"),
    }
