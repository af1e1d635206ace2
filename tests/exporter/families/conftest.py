"""Packages that offer families, as pip would leave them: a module, and its entry point in metadata."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exporter.dims.declared import plan_declared
from exporter.families.declared import DeclaredTower
from exporter.families.family import (
    DimDeclaration,
    Family,
    InputDeclaration,
    TensorDeclaration,
    TowerDeclaration,
)
from exporter.planning import PlannedTower
from exporter.spec import ExportSpec, Mode, TowerName
from exporter.towers.declared_view import declared_tower

SOUND = """
from exporter.families.family import Family, InputDeclaration, TowerDeclaration
from torch import nn

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(2, 1)

    def forward(self, inputs):
        return {"score": self.scale(inputs["x"]).squeeze(1)}

class Sound(Family):
    def towers(self, config):
        return [TowerDeclaration(inputs=[InputDeclaration(name="x", dtype="float32", shape=("batch", 2))])]

    def build(self, config, tower):
        return Scaled()
"""

Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a module that offers the family of its name; gives the name."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    names: list[str] = []

    def installed(name: str, source: str = SOUND, *, offers: str = "Sound") -> str:
        metadata = tmp_path / "site" / f"{name}-1.2.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1.2\n")
        (metadata / "entry_points.txt").write_text(f"[slipway.families]\n{name} = {name}:{offers}\n")
        (tmp_path / "site" / f"{name}.py").write_text(source)
        names.append(name)
        return name

    yield installed
    for name in names:
        sys.modules.pop(name, None)


def spec_of(family: str, *towers: TowerName, mode: Mode = Mode.UNIFIED) -> ExportSpec:
    return ExportSpec(
        config="anything",
        family=family,
        checkpoint_uri="unread",
        sample_input_uri="unread",
        output_uri="unread",
        towers=towers or None,
        mode=mode,
        max_batch_size=16,
    )


class Weighted(nn.Module):
    """The sum of a row's ids, each times a weight: `total` (B,)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.arange(9.0).unsqueeze(1))

    def lookup(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"rows": self.table(inputs["ids"]), **{name: inputs[name] for name in ("weights", "counts")}}

    def compute(self, embedded: dict[str, Tensor]) -> dict[str, Tensor]:
        products = embedded["rows"] * embedded["weights"]
        ends = embedded["counts"].cumsum(0)
        sums = torch.cat([products.new_zeros(1, 1), products.cumsum(0)])
        return {"total": (sums[ends] - sums[ends - embedded["counts"]]).squeeze(1)}

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.compute(self.lookup(inputs))


class WeightedFamily(Family):
    """Ids and weights of one dim, counted by one input; the module is whatever it is given."""

    declaration = TowerDeclaration(
        dims=(DimDeclaration(name="n", high_per_row=4),),
        inputs=(
            InputDeclaration(name="ids", dtype="int64", shape=("n",), table_rows=9, lengths="counts"),
            InputDeclaration(name="weights", dtype="float32", shape=("n", 1), column="w", lengths="counts"),
            InputDeclaration(name="counts", dtype="int64", shape=("batch",)),
        ),
        embedded=(
            TensorDeclaration(name="rows", dtype="float32", shape=("n", 1)),
            TensorDeclaration(name="weights", dtype="float32", shape=("n", 1)),
            TensorDeclaration(name="counts", dtype="int64", shape=("batch",)),
        ),
    )

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def towers(self, config: str) -> Sequence[TowerDeclaration]:
        return [self.declaration]

    def build(self, config: str, tower: TowerName) -> nn.Module:
        return self.module


def blueprint_of(family: WeightedFamily, mode: Mode = Mode.UNIFIED) -> DeclaredTower:
    planned = PlannedTower(
        config=declared_tower(family.declaration, family="weighted", text=""),
        plan=plan_declared(family.declaration, max_batch_size=16),
    )
    return DeclaredTower(planned, family, (family.declaration,), mode=mode)
