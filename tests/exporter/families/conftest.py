"""A family in Python whose module tests choose, and requests for families."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from exporter.construction.declared_blueprint import DeclaredBlueprint
from exporter.dims.declared_dims import plan_declared
from exporter.families.family import (
    DimDeclaration,
    Family,
    InputDeclaration,
    TensorDeclaration,
    TowerDeclaration,
)
from exporter.spec import ExportSpec, Mode, TowerName
from exporter.towers.declared_view import declared_tower
from exporter.towers.plan import PlannedTower


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


def blueprint_of(family: WeightedFamily, mode: Mode = Mode.UNIFIED) -> DeclaredBlueprint:
    planned = PlannedTower(
        config=declared_tower(family.declaration, family="weighted", text=""),
        plan=plan_declared(family.declaration, max_batch_size=16),
    )
    return DeclaredBlueprint(planned, family, (family.declaration,), mode=mode)
